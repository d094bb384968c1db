// Undelivered and delivered events: search, filters, and the state of each.
import { get, outboxPath, post } from './api.js';
import { h, replace } from './dom.js';
import { live, watch } from './live.js';
import { act, ask, field, noteField, notice } from './dialog.js';
import { brief, bytes, count } from './format.js';
import { filterForm } from './filters.js';
import { chosenOutbox, outboxTabs, whenKnown } from './outbox-tabs.js';
import { navigate } from './router.js';
import { may } from './session.js';
import { eventBadge } from './signs.js';
import { empty, fill, skeleton } from './states.js';
import { pagedList, table } from './table.js';
import { ago } from './time.js';
import { poll } from './poll.js';
import { canaryFields, filterWords, paceOf, requestKey } from './bulk.js';

const FIELDS = ['status', 'event_type', 'aggregate_type', 'aggregate_id', 'request_id', 'error', 'created_since', 'created_until'];

export function events({ outlet, query: first, signal }) {
  let asked = first;
  const outbox = () => chosenOutbox(asked);
  const filters = filterForm([
    { name: 'q', label: 'Search', type: 'search', hint: 'event ID, row ID or aggregate/ID' },
    { name: 'status', label: 'State', type: 'select', options: [['', 'Undelivered'], ['PENDING', 'Pending'], ['PROCESSING', 'Processing'], ['FAILED', 'Will retry'], ['DEAD_LETTER', 'Marked dead'], ['COMPLETED', 'Delivered (archive)']] },
    { name: 'event_type', label: 'Type', type: 'text', suggestions: true },
    { name: 'request_id', more: true, label: 'Request ID', type: 'text' },
    { name: 'error', more: true, label: 'Error contains', type: 'text' },
    { name: 'created_since', more: true, label: 'Appended since', type: 'time' },
    { name: 'created_until', more: true, label: 'Appended until', type: 'time' },
  ], 'Events');
  const tabs = outboxTabs(outbox, (o) => o.pending, signal);
  const total = h('p.dim.list-count');
  const results = h('div');
  const replay = may('operator') && h('button.button', { type: 'button', hidden: true, on: { click: () => replayDialog(outbox(), filterOf(asked)) } }, 'Replay…');
  outlet.append(
    h('div.page-head', {}, h('h1', {}, 'Events'), h('div.page-actions', {}, replay || null)),
    tabs.element, filters.form, total, results);

  const list = () => pagedList({
    signal,
    list: table({
      caption: 'Events', key: (row) => row.id,
      columns: [
        { label: 'ID', class: 'id', cell: (row) => h('a', { href: `/events/${encodeURIComponent(outbox())}/${row.id}` }, `#${row.id}`) },
        { label: 'State', cell: (row) => eventBadge(row.status) },
        { label: 'Type', cell: (row) => row.event_type },
        { label: 'Aggregate', class: 'mono', cell: (row) => `${row.aggregate_type}/${row.aggregate_id}` },
        { label: 'Attempts', class: 'right', cell: (row) => String(row.retry_count) },
        { label: 'Appended', cell: (row) => ago(row.created_at) },
        { label: 'Next attempt', cell: (row) => next(row) },
        { label: 'Last error', class: 'wide', cell: (row) => h('span.cut', { title: row.last_error }, brief(row.last_error, 90)) },
        { label: 'Size', class: 'right', cell: (row) => bytes(row.payload_bytes) },
      ],
    }),
    load: (before) => get(outboxPath(outbox(), 'events'), { ...filterOf(asked), before }, signal),
    nothing: () => nothing(asked, outbox()),
  });
  let shown = null;
  const show = async () => {
    if (!results.firstChild) replace(results, skeleton(8));
    await whenKnown(signal);
    if (!outbox() || leadsElsewhere(asked, outbox())) return;
    filters.show(asked);
    tabs.draw();
    // A replay cannot filter by error, because delivered events have none.
    if (replay) replay.hidden = asked.status !== 'COMPLETED' || Boolean(asked.error);
    const mine = list();
    shown = mine;
    replace(results);
    await fill(results, () => get(outboxPath(outbox(), 'events'), filterOf(asked), signal), (found) => {
      mine.show(found);
      return mine.element;
    }, signal, 8);
    counted(total, outbox(), filterOf(asked), signal);
  };
  watch(({ snapshot }, reconnected) => {
    filters.suggest('event_type', snapshot?.outboxes.find((o) => o.name === outbox())?.by_type.map((t) => t.event_type) ?? []);
    if (reconnected) show();
  }, signal);
  poll(async () => shown?.element.isConnected && shown.look(), 4_000, signal);
  show();
  return { update(now) { asked = now; show(); } };
}

/** A row ID in the search leads to that event instead of a list. Returns whether it did. */
function leadsElsewhere(asked, outbox) {
  const text = asked.q?.trim() ?? '';
  if (!/^#?\d+$/.test(text)) return false;
  // Replaces the search in the browser's history, so that Back does not lead here again.
  navigate(`/events/${encodeURIComponent(outbox)}/${text.replace('#', '')}`, { replace: true });
  return true;
}

function filterOf(asked) {
  const filter = Object.fromEntries(FIELDS.map((name) => [name, asked[name]]).filter(([, value]) => value));
  const text = asked.q?.trim();
  if (!text) return filter;
  const slash = text.indexOf('/');
  if (slash > 0) return { ...filter, aggregate_type: text.slice(0, slash), aggregate_id: text.slice(slash + 1) };
  return { ...filter, event_id: text };
}

function next(row) {
  if (row.delivered_at) return h('span', {}, 'delivered ', ago(row.delivered_at));
  if (row.status === 'PROCESSING') return h('span.dim', { title: row.locked_by }, 'claimed ', ago(row.locked_at));
  return row.next_retry_at ? ago(row.next_retry_at) : h('span.dim', {}, 'due now');
}

function nothing(asked, outbox) {
  if (Object.keys(filterOf(asked)).length) return empty('No matching events', 'To search delivered events, set the state to “Delivered (archive)”. Dead letters have a page of their own.', h('a', { href: `/events?outbox=${encodeURIComponent(outbox)}` }, 'Clear filters'));
  const known = live.snapshot?.outboxes.find((o) => o.name === outbox);
  return empty('No undelivered events', known?.archives ? 'Every event has been delivered or is a dead letter.' : 'Every event has been delivered and deleted, or is a dead letter.',
    known?.archives && h('a', { href: `/events?outbox=${encodeURIComponent(outbox)}&status=COMPLETED` }, 'Show delivered events'));
}

async function counted(place, outbox, filter, signal) {
  replace(place);
  try {
    const found = await get(outboxPath(outbox, 'events', 'count'), filter, signal);
    if (found.count) replace(place, count(found), found.count === 1 ? ' matching event' : ' matching events');
  } catch (problem) {
    if (!signal.aborted) replace(place, problem.message);
  }
}

/** Replays the delivered events that match the current filters. */
function replayDialog(outbox, filter) {
  const { status, ...wanted } = filter;
  const key = requestKey();
  const others = live.snapshot.outboxes.map((o) => o.name);
  const preview = h('p', { role: 'status' });
  const work = (values) => ({ kind: 'replay', filter: wanted, ...(values.into && values.into !== outbox ? { into: values.into } : {}) });
  const dry = act(h('button.button.small', { type: 'button' }, 'Count matching events'), async () => {
    const found = await post(outboxPath(outbox, 'jobs'), { work: work({}), dry_run: true });
    replace(preview, count(found), ' events would be replayed.');
  });
  return ask({
    title: 'Replay delivered events', confirm: 'Start', wide: true,
    text: [h('p', {}, `Outbox ${outbox}: `, h('strong', {}, filterWords(wanted, 'all delivered events'))), 'Each event keeps its event ID, so receivers can recognise duplicates.', h('p', {}, dry), preview],
    fields: [
      field('Target outbox', h('select', { name: 'into' }, others.map((name) => h('option', { value: name, selected: name === outbox }, name)))),
      ...canaryFields(), noteField(),
    ],
    act: async (values) => {
      const job = await post(outboxPath(outbox, 'jobs'), { work: work(values), note: values.note, ...paceOf(values) }, { 'idempotency-key': key });
      notice(`Job ${job.id} will replay the events.`, { link: { href: `/dead-letters?outbox=${encodeURIComponent(outbox)}`, text: 'View progress' } });
    },
  });
}
