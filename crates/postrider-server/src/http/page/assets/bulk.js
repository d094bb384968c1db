// Bulk actions by filter: first a dry run, then a job that the relays run, with its progress.
import { get, outboxPath, post } from './api.js';
import { h, keyed, replace, setText } from './dom.js';
import { act, ask, field, noteField, notice } from './dialog.js';
import { count, exact, rate } from './format.js';
import { poll } from './poll.js';
import { may } from './session.js';
import { jobBadge, reasonText } from './signs.js';
import { ago } from './time.js';

const WORDS = { dlq_retry: 'Retry', dlq_resolve: 'Resolve', replay: 'Replay' };

/** Fields for a job's rate limit and its canary. */
export function canaryFields() {
  return [
    h('div.field-row', {},
      field('Events per second', h('input', { name: 'rate', type: 'number', min: 1, max: 1_000_000, placeholder: 'no limit', inputmode: 'numeric' })),
      field('Canary size', h('input', { name: 'canary', type: 'number', min: 1, max: 1_000, placeholder: 'none', inputmode: 'numeric' })),
      field('Canary timeout (s)', h('input', { name: 'within', type: 'number', min: 1, max: 86_400, value: 60, inputmode: 'numeric' }))),
    h('p.hint', {}, 'With a canary, that many events are sent first, and the rest follow only if these are delivered within the timeout. Otherwise the job stops; you can resume it.'),
  ];
}

export function paceOf({ rate: limit, canary, within }) {
  return {
    ...(limit ? { rate: Number(limit) } : {}),
    ...(canary ? { canary: { count: Number(canary), within_s: Number(within || 60) } } : {}),
  };
}

/** The filter in words. */
export function filterWords(filter, all = 'all unresolved dead letters') {
  const words = {
    fingerprint: () => 'one error group',
    event_type: (value) => `type ${value}`,
    aggregate_type: (value) => `aggregate type ${value}`,
    aggregate_id: (value) => `aggregate ${value}`,
    error: (value) => `error contains “${value}”`,
    reason: (value) => reasonText(value).toLowerCase(),
    since: (value) => `since ${new Date(value).toLocaleString('en-GB')}`,
    until: (value) => `until ${new Date(value).toLocaleString('en-GB')}`,
    event_id: (value) => `event ID ${value}`,
  };
  const parts = Object.entries(filter).filter(([, value]) => value).map(([name, value]) => words[name]?.(value) ?? `${name} ${value}`);
  return parts.length ? parts.join(', ') : all;
}

/** One key per dialog, so that pressing again after a lost response does not create a second job. Browsers
 *  offer `crypto.randomUUID` only over TLS and on localhost. */
export const requestKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Asks for the settings, shows how many dead letters match, and creates the job. */
export async function bulkDialog(kind, outbox, filter, sample) {
  const verb = WORDS[kind].toLowerCase();
  const work = { kind, filter };
  const key = requestKey();
  const preview = h('p.preview', { role: 'status' }, 'Counting matching dead letters…');
  post(outboxPath(outbox, 'jobs'), { work, dry_run: true }).then(
    (found) => replace(preview, h('strong', {}, count(found)), ` unresolved dead ${found.count === 1 ? 'letter matches' : 'letters match'} now (dry run: nothing was changed).`),
    (problem) => replace(preview, `The dry run failed: ${problem.message}`));
  const job = await ask({
    title: `${WORDS[kind]} by filter`, confirm: `${WORDS[kind]} them`, wide: true,
    text: [
      h('p', {}, `Outbox ${outbox}: `, h('strong', {}, filterWords(filter))),
      sample && h('pre.error', { tabindex: 0, 'aria-label': 'Error' }, sample),
      preview,
      kind === 'dlq_retry' ? 'Each is appended as a new event with the same event ID and the retry count reset.' : 'They are marked as resolved, and nothing is sent.',
    ],
    fields: [...(kind === 'dlq_retry' ? canaryFields() : [h('div.field-row', {}, field('Entries per second', h('input', { name: 'rate', type: 'number', min: 1, max: 1_000_000, placeholder: 'no limit' })))]), noteField(kind === 'dlq_resolve')],
    act: (values) => post(outboxPath(outbox, 'jobs'), { work, note: values.note, ...paceOf(values) }, { 'idempotency-key': key }),
  });
  if (job) notice(`Job ${job.id} will ${verb} them. Its progress is shown below.`);
  return job;
}

/** The latest jobs of an outbox, live. */
export function jobsPanel(outbox, signal, changed) {
  const list = h('div.jobs');
  const element = h('section.panel.wide', { 'aria-label': 'Bulk jobs', hidden: true }, h('div.panel-head', {}, h('h2', {}, 'Bulk jobs')), list);
  let known = null;
  const look = async () => {
    if (!outbox()) return;
    const { rows } = await get('/jobs', { outbox: outbox(), limit: 5 }, signal);
    element.hidden = !rows.length;
    keyed(list, rows, (job) => job.id, (job) => jobCard(job, again), (card, job) => card.show(job));
    // A small job may start and end between two polls.
    const ended = ({ id, state }) => !['waiting', 'running', 'canary'].includes(state) && known.get(id) !== state;
    const news = known !== null && rows.some(ended);
    known = new Map(rows.map(({ id, state }) => [id, state]));
    if (news) changed();
  };
  const again = poll(look, 1_500, signal);
  return { element, look: again };
}

function jobCard(first, again) {
  const state = h('span');
  const bar = h('progress', { max: 1, 'aria-label': `Progress of job ${first.id}` });
  const numbers = h('span.num');
  const reason = h('p.hint');
  const stop = act(h('button.button.small', { type: 'button' }, 'Stop'), async () => {
    await post(`/jobs/${first.id}/stop`, { note: '' });
    notice(`Job ${first.id} stopped. What it has done so far is kept.`, { undo: async () => {
      await post(`/jobs/${first.id}/resume`, { note: '' });
      again();
      return `Job ${first.id} resumed.`;
    } });
    again();
  });
  const resume = act(h('button.button.small', { type: 'button' }, 'Resume'), async () => {
    await post(`/jobs/${first.id}/resume`, { note: '' });
    notice(`Job ${first.id} resumed where it stopped.`);
    again();
  });
  const card = h('article.card.job', {},
    h('div.card-head', {}, state, h('strong', {}, `${WORDS[first.kind]}: `), h('span.grow.cut', {}, filterWords(first.work.filter, first.kind === 'replay' ? 'all delivered events' : undefined)), stop, resume),
    bar,
    h('div.row', {}, numbers, h('span.dim.grow', {}, `by ${first.operator}`, first.note && `: ${first.note}`), h('span.dim', {}, ago(first.created_at))),
    reason);
  card.show = (job) => {
    const word = jobBadge(job.state);
    if (state.textContent !== word.textContent) replace(state, word);
    bar.value = job.state === 'done' ? 1 : job.progress;
    const limit = job.rate ? `, at most ${rate(job.rate)}/s` : '';
    const skipped = job.skipped_count ? `, ${exact(job.skipped_count)} skipped` : '';
    setText(numbers, `${exact(job.done_count)} done${skipped}${limit}`);
    setText(reason, job.reason ?? '');
    reason.hidden = !job.reason;
    stop.hidden = !may('operator') || !['waiting', 'running', 'canary'].includes(job.state);
    resume.hidden = !may('operator') || !['stopped', 'failed'].includes(job.state);
  };
  return card;
}
