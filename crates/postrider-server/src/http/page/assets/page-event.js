// The whole history of one event: when it was appended, each attempt, and its current state.
import { get, outboxPath } from './api.js';
import { h } from './dom.js';
import { plural } from './format.js';
import { eventBadge, reasonText } from './signs.js';
import { fill } from './states.js';
import { facts } from './table.js';
import { attemptSteps, contentSection, copyButton, responseSection, step, timeline } from './story.js';
import { ago } from './time.js';
import { setTitle } from './router.js';

export function eventStory({ outlet, params, signal }) {
  const { outbox, id } = params;
  setTitle(`Event #${id}`);
  const place = h('div');
  outlet.append(
    h('nav.crumbs', { 'aria-label': 'Back' }, h('a', { href: `/events?outbox=${encodeURIComponent(outbox)}` }, `Events of ${outbox}`)),
    h('div.page-head', {}, h('h1', {}, `Event #${id}`)), place);
  const load = async () => {
    const story = await get(outboxPath(outbox, 'events', id), {}, signal);
    const same = await get(outboxPath(outbox, 'identities', encodeURIComponent(story.event.event_id)), {}, signal);
    return { ...story, same };
  };
  fill(place, load, (story) => draw(outbox, story), signal, 10);
  return {};
}

function draw(outbox, { event, content, response, attempts, same }) {
  const letters = same.dead_letters.filter((letter) => letter.original_id === event.id || letter.retried_as === event.id || letter.event_id === event.event_id);
  const others = same.events.filter((other) => other.id !== event.id);
  return h('div.story', {},
    h('div.story-main', {},
      h('section.panel', { 'aria-label': 'Timeline' }, h('div.panel-head', {}, h('h2', {}, 'Timeline'), eventBadge(event.status)),
        timeline(steps(outbox, event, attempts, letters))),
      contentSection(content, event.payload_bytes),
      responseSection(response)),
    h('aside.story-side', { 'aria-label': 'Details' },
      h('section.panel', {}, h('h2', {}, 'Details'), facts([
        ['Event ID', h('span.mono.break', {}, event.event_id, ' ', copyButton(event.event_id))],
        ['Type', event.event_type],
        ['Aggregate', h('a.mono', { href: `/events?outbox=${encodeURIComponent(outbox)}&q=${encodeURIComponent(`${event.aggregate_type}/${event.aggregate_id}`)}` }, `${event.aggregate_type}/${event.aggregate_id}`)],
        ['Request ID', event.request_id ? h('span.mono.break', {}, event.request_id) : '–'],
        ['Attempts spent', String(event.retry_count)],
        event.redrive_count && ['Sent again', `${plural(event.redrive_count, 'time')} from the dead letters`],
        ['Expires', event.expires_at ? ago(event.expires_at) : 'never'],
      ])),
      others.length ? h('section.panel', {}, h('h2', {}, 'Same event ID'), h('ul.plain', {}, others.map((other) => h('li.row', {},
        h('a', { href: `/events/${encodeURIComponent(outbox)}/${other.id}` }, `#${other.id}`), eventBadge(other.status), ago(other.created_at))))) : null,
      !same.complete && h('p.hint', {}, 'The search for events with the same ID reached its time limit; there may be more.')));
}

function steps(outbox, event, attempts, letters) {
  const link = (letter) => h('a', { href: `/dead-letters/${encodeURIComponent(outbox)}/${letter.id}` }, `dead letter ${letter.id}`);
  const past = [
    [event.created_at, step('quiet', 'dot', event.created_at, event.redrive_count ? 'Sent again from the dead letters' : 'Appended', !event.redrive_count && 'in the same transaction as the business change')],
    ...attempts.map((attempt, place) => [attempt.failed_at, attemptSteps(attempts)[place]]),
    ...letters.map((letter) => [letter.failed_at, step('bad', 'cross', letter.failed_at, `Moved to the dead letters: ${reasonText(letter.reason).toLowerCase()}`, link(letter))]),
    ...letters.filter((letter) => letter.resolved).map((letter) => [letter.resolved_at, step('quiet', 'arrow', letter.resolved_at, `${letter.retried_as ? 'Sent again' : 'Resolved'} by ${letter.resolved_by}`, letter.resolution_note)]),
  ].sort(([a], [b]) => Date.parse(a) - Date.parse(b)).map(([, element]) => element);
  return [...past, present(event)];
}

function present(event) {
  switch (event.status) {
    case 'COMPLETED': return step('good', 'check', event.delivered_at, 'Delivered');
    case 'PROCESSING': return step('busy', 'half', event.locked_at, 'Being delivered', h('div.dim', {}, `by relay ${event.locked_by}`));
    case 'FAILED': return step('busy', 'ring', null, 'Waiting for the next attempt', h('div', {}, 'due ', ago(event.next_retry_at, 'now')));
    case 'DEAD_LETTER': return step('bad', 'cross', null, 'Marked dead', 'Writing it to the dead-letter table failed; maintenance will retry.');
    default: return step('busy', 'ring', null, 'Waiting to be claimed', h('div', {}, event.next_retry_at ? ['due ', ago(event.next_retry_at)] : 'due now'),
      event.last_error && h('pre.error', { tabindex: 0, 'aria-label': 'Last error' }, event.last_error));
  }
}
