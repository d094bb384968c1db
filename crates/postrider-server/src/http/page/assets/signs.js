// States as a shape, a word and a colour together, so that no state is shown by colour alone.
import { h, s } from './dom.js';

const SHAPES = {
  dot: () => s('circle', { cx: 8, cy: 8, r: 5 }),
  ring: () => s('circle', { cx: 8, cy: 8, r: 4.5, fill: 'none', 'stroke-width': 2, stroke: 'currentColor' }),
  half: () => [
    s('circle', { cx: 8, cy: 8, r: 4.5, fill: 'none', 'stroke-width': 2, stroke: 'currentColor' }),
    s('path', { d: 'M8 3.5a4.5 4.5 0 0 1 0 9z' }),
  ],
  check: () => s('path', { d: 'M3.5 8.5l3 3 6-7', fill: 'none', stroke: 'currentColor', 'stroke-width': 2.2, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' }),
  cross: () => s('path', { d: 'M4 4l8 8M12 4l-8 8', fill: 'none', stroke: 'currentColor', 'stroke-width': 2.4, 'stroke-linecap': 'round' }),
  warn: () => s('path', { d: 'M8 2l6.5 12h-13zM7.2 6.4h1.6v3.8H7.2zm0 4.8h1.6v1.5H7.2z', 'fill-rule': 'evenodd' }),
  pause: () => s('path', { d: 'M4.5 3.5h2.4v9H4.5zm4.6 0h2.4v9H9.1z' }),
  octagon: () => s('path', { d: 'M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8H5.3l-3.8-3.8V5.3zM7.2 4.4h1.6v4.4H7.2zm0 5.6h1.6v1.6H7.2z', 'fill-rule': 'evenodd' }),
  arrow: () => s('path', { d: 'M3 8h9M8.5 4.5L12 8l-3.5 3.5', fill: 'none', stroke: 'currentColor', 'stroke-width': 2, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' }),
};

export function shape(name) {
  return s('svg', { class: 'shape', viewBox: '0 0 16 16', fill: 'currentColor', 'aria-hidden': 'true' }, [SHAPES[name]()].flat());
}

/** `tone` is good, busy, warn, bad or quiet. */
export function badge(tone, form, text, title) {
  return h(`span.badge.${tone}`, { title }, shape(form), h('span', {}, text));
}

const EVENT = {
  PENDING: ['quiet', 'ring', 'Pending', 'Waiting to be claimed'],
  PROCESSING: ['busy', 'half', 'Processing', 'A relay is delivering it'],
  COMPLETED: ['good', 'check', 'Delivered', 'Delivered and archived'],
  FAILED: ['warn', 'warn', 'Will retry', 'An attempt failed; another one is scheduled'],
  DEAD_LETTER: ['bad', 'cross', 'Dead letter', 'Failed permanently; not yet moved to the dead letters'],
};
export const eventBadge = (status) => badge(...EVENT[status]);

const REASON = {
  exhausted: ['No attempts left', 'Every attempt failed'],
  rejected: ['Rejected', 'The destination rejected it permanently'],
  integrity: ['Content changed', 'The content does not match its hash'],
  no_route: ['No route', 'No configured route matches it'],
  expired: ['Expired', 'Not delivered before its expiry time'],
  crash: ['Crash', 'A relay crashed while this was the only event in flight'],
};
export const reasonText = (reason) => REASON[reason]?.[0] ?? reason;
export const reasonBadge = (reason) => badge('bad', 'cross', ...(REASON[reason] ?? [reason]));

const BREAKER = {
  closed: ['good', 'dot', 'Up', 'The breaker is closed: events are sent'],
  open: ['bad', 'cross', 'Down', 'The breaker is open: events wait, and no attempts are spent'],
  probing: ['warn', 'half', 'Probing', 'One event is being sent to test whether the destination has recovered'],
};
export const breakerBadge = (state) => badge(...BREAKER[state]);

const SEVERITY = {
  critical: ['bad', 'octagon', 'Critical'],
  warning: ['warn', 'warn', 'Warning'],
  info: ['quiet', 'dot', 'Info'],
};
export const severityBadge = (severity) => badge(...SEVERITY[severity]);

const JOB = {
  waiting: ['quiet', 'ring', 'Waiting', 'A relay will start it within seconds'],
  running: ['busy', 'half', 'Running'],
  canary: ['busy', 'half', 'Canary', 'Waiting for the first events to be delivered'],
  done: ['good', 'check', 'Done'],
  stopped: ['warn', 'pause', 'Stopped'],
  failed: ['bad', 'cross', 'Failed'],
};
export const jobBadge = (state) => badge(...JOB[state]);

const HASH = {
  verified: ['good', 'check', 'Hash verified', 'The content is the same as when it was appended'],
  mismatch: ['bad', 'cross', 'Hash mismatch', 'The content differs from what was appended'],
  none: ['quiet', 'ring', 'No hash', 'The producer stored no hash, so the content cannot be verified'],
};
export const hashBadge = (verdict) => badge(...HASH[verdict]);

/** The state of an outbox in one badge: the worst that applies. */
export function outboxBadge(outbox) {
  if (outbox.paused) return badge('warn', 'pause', 'Paused', `by ${outbox.paused.operator}: ${outbox.paused.note || 'no note'}`);
  if (outbox.down.length) return badge('bad', 'cross', 'Destination down', outbox.down.map((d) => d.destination).join(', '));
  if (outbox.unresolved) return badge('warn', 'warn', 'Needs attention', 'Has unresolved dead letters');
  if (outbox.pending || outbox.rates?.delivered_per_s) return badge('good', 'arrow', 'Active', 'Events are waiting or being delivered');
  return badge('quiet', 'dot', 'Idle', 'No events are waiting');
}
