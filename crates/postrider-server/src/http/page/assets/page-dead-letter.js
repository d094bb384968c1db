// One dead letter: its reason, its content, and the available actions.
import { get, href, outboxPath } from './api.js';
import { h, replace } from './dom.js';
import { plural } from './format.js';
import { editAndResend, reopen, resolve, retry } from './letter-actions.js';
import { setTitle } from './router.js';
import { may } from './session.js';
import { badge, reasonBadge, reasonText } from './signs.js';
import { fill } from './states.js';
import { attemptSteps, contentSection, copyButton, step, timeline } from './story.js';
import { facts } from './table.js';
import { ago } from './time.js';

export function deadLetterStory({ outlet, params, signal }) {
  const { outbox, id } = params;
  setTitle(`Dead letter #${id}`);
  const place = h('div');
  const buttons = h('div.page-actions');
  outlet.append(
    h('nav.crumbs', { 'aria-label': 'Back' }, h('a', { href: `/dead-letters?outbox=${encodeURIComponent(outbox)}` }, `Dead letters of ${outbox}`)),
    h('div.page-head', {}, h('h1', {}, `Dead letter #${id}`), buttons), place);
  const show = () => fill(place, () => get(outboxPath(outbox, 'dead-letters', id), {}, signal), (story) => {
    replace(buttons, actions(outbox, story, show));
    return draw(outbox, story);
  }, signal, 10);
  show();
  return {};
}

function actions(outbox, story, show) {
  const letter = story.dead_letter;
  const button = (label, work, tone = '') => h(`button.button${tone}`, { type: 'button', on: { click: async () => (await work()) && show() } }, label);
  const exporting = h('a.button', { href: href(outboxPath(outbox, 'dead-letters', 'export'), { event_id: letter.event_id }), download: '' }, 'Export');
  if (!may('operator')) return exporting;
  if (letter.resolved) return [letter.retried_as ? null : button('Reopen…', () => reopen(outbox, letter.id)), exporting];
  return [
    button('Retry…', () => retry(outbox, letter.id), '.primary'),
    button('Edit and resend…', () => editAndResend(outbox, story)),
    button('Resolve…', () => resolve(outbox, letter.id, show)),
    exporting,
  ];
}

function draw(outbox, { dead_letter: letter, content, attempts }) {
  return h('div.story', {},
    h('div.story-main', {},
      h('section.panel', { 'aria-label': 'Timeline' },
        h('div.panel-head', {}, h('h2', {}, 'Timeline'), letter.resolved ? badge('good', 'check', letter.retried_as ? 'Sent again' : 'Resolved') : reasonBadge(letter.reason)),
        timeline([
          step('quiet', 'dot', letter.event_created_at, 'Appended', `as event #${letter.original_id}`),
          attemptSteps(attempts),
          step('bad', 'cross', letter.failed_at, `Moved to the dead letters: ${reasonText(letter.reason).toLowerCase()}`,
            h('pre.error', { tabindex: 0, 'aria-label': 'Error' }, letter.error_message), letter.error_detail && h('pre.error', { tabindex: 0, 'aria-label': 'Error details' }, letter.error_detail)),
          letter.resolved
            ? step('good', letter.retried_as ? 'arrow' : 'check', letter.resolved_at, `${letter.retried_as ? 'Sent again' : 'Resolved'} by ${letter.resolved_by}`,
              letter.resolution_note, letter.retried_as && h('div', {}, h('a', { href: `/events/${encodeURIComponent(outbox)}/${letter.retried_as}` }, `as event #${letter.retried_as}`)))
            : step('busy', 'ring', null, 'Awaiting action'),
        ].flat())),
      contentSection(content, letter.payload_bytes)),
    h('aside.story-side', { 'aria-label': 'Details' },
      h('section.panel', {}, h('h2', {}, 'Details'), facts([
        ['Event ID', h('span.mono.break', {}, letter.event_id, ' ', copyButton(letter.event_id))],
        ['Type', letter.event_type],
        ['Aggregate', h('span.mono', {}, `${letter.aggregate_type}/${letter.aggregate_id}`)],
        ['Request ID', letter.request_id ? h('span.mono.break', {}, letter.request_id) : '–'],
        ['Attempts', String(letter.retry_count)],
        letter.expires_at && ['Expires', ago(letter.expires_at)],
        letter.redrive_count && ['Sent again before', plural(letter.redrive_count, 'time')],
        ['Error group', h('a', { href: `/dead-letters?outbox=${encodeURIComponent(outbox)}&fingerprint=${encodeURIComponent(letter.fingerprint)}` }, 'Show dead letters with this error')],
      ]))));
}
