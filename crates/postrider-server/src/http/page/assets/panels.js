// The panels of the overview: alerts, breakers, relays, ledger.
import { get, post } from './api.js';
import { h, replace } from './dom.js';
import { act, notice } from './dialog.js';
import { compact, milliseconds, number, plural, seconds } from './format.js';
import { poll } from './poll.js';
import { may } from './session.js';
import { badge, breakerBadge, severityBadge } from './signs.js';
import { broken, empty, skeleton } from './states.js';
import { ago, since } from './time.js';

const controls = (body) => [...body.querySelectorAll('button, a, input, select')];

/** A panel that reloads every few seconds and redraws only if something has changed. */
export function panel(title, { load, draw, every = 5_000, signal, link, note, wide, label = title }) {
  const body = h('div.panel-body', {}, skeleton(3));
  let shown = null;
  const look = async () => {
    try {
      const loaded = await load(signal);
      const key = JSON.stringify(loaded);
      // Nothing moves while it is being clicked, and a focused button keeps the focus.
      if (key === shown || (shown !== null && body.matches(':active'))) return;
      shown = key;
      const place = controls(body).indexOf(document.activeElement);
      replace(body, draw(loaded, again));
      if (place >= 0) controls(body)[place]?.focus({ preventScroll: true });
    } catch (problem) {
      if (signal.aborted || shown !== null) throw problem;
      replace(body, broken(problem, look));
    }
  };
  const again = poll(look, every, signal);
  return h(`section.panel${wide ? '.wide' : ''}`, { 'aria-label': label },
    h('div.panel-head', {}, h('h2', {}, title), link && h('a', { href: link[0] }, link[1])),
    body, note && h('p.hint', {}, note));
}

export function alertsPanel(signal) {
  return panel('Active alerts', {
    signal, link: ['/alerts', 'All alerts'],
    load: async () => {
      const { active } = await get('/alerts', {}, signal);
      document.dispatchEvent(new CustomEvent('postrider-alerts', { detail: active }));
      return active;
    },
    draw: (active) => (active.length
      ? h('ul.plain', {}, active.slice(0, 6).map((alert) => h('li.row', {}, severityBadge(alert.severity),
        h('span.grow', {}, alert.title), h('span.dim', {}, 'for ', since(alert.since)))))
      : empty('No active alerts', 'New alerts appear here and are sent to the configured channels.')),
  });
}

export function breakersPanel(signal) {
  return panel('Breakers', {
    signal, link: ['/outboxes', 'Sinks'], note: 'Down: reported by any relay. Up: destinations that this server has sent to.',
    load: () => get('/sinks', {}, signal),
    draw: (sinks) => {
      const rows = sinks.flatMap((sink) => breakerRows(sink));
      return rows.length ? h('ul.plain', {}, rows.slice(0, 8)) : empty('No destinations yet', 'A destination appears here once an event has been sent to it.');
    },
  });
}

function breakerRows(sink) {
  if (sink.paused) return [h('li.row', {}, badge('warn', 'pause', 'Paused'), h('span.grow', {}, sink.name), h('span.dim', {}, 'for ', since(sink.paused.paused_at)))];
  const known = new Map(sink.destinations.map((d) => [d.destination, { state: d.state, last: d.last_success_at }]));
  for (const down of sink.down) known.set(down.destination, { state: known.get(down.destination)?.state === 'probing' ? 'probing' : 'open', down });
  return [...known].map(([destination, { state, down, last }]) => h('li.row', {},
    breakerBadge(state),
    h('span.grow.cut', { title: down?.error }, h('strong', {}, sink.name), ' ', h('span.dim', {}, destination)),
    h('span.dim', {}, down ? ['for ', since(down.since)] : ago(last, 'no success yet'))));
}

export function relaysPanel(signal) {
  return panel('Relays', {
    signal, link: ['/outboxes', 'Lanes'],
    load: async () => (await get('/relays', {}, signal)).map(({ heartbeat, ...relay }) => ({ ...relay, age_s: Math.floor(relay.age_s / 10) * 10 })),
    draw: (relays) => (relays.length
      ? h('ul.plain', {}, relays.map((relay) => h('li.row', {},
        relay.fenced ? badge('bad', 'cross', 'Dead', 'Declared dead; its events are being recovered') : badge('good', 'dot', 'Alive'),
        h('span.grow.cut', { title: relay.relay_id }, relay.host, ' ', h('span.dim', {}, relay.serving.map((s) => s.outbox).join(', '))),
        h('span.dim.num', {}, `${compact(relay.serving.reduce((sum, s) => sum + s.traffic.in_flight, 0))} in flight, up ${seconds(relay.age_s)}`))))
      : empty('No relays', 'Start one with “postrider run” to deliver events.')),
  });
}

export function ledgerPanel(signal) {
  return panel('Ledger', {
    signal, every: 4_000,
    load: () => get('/reconcile', {}, signal),
    draw: ({ last, running_since: running }, again) => [
      h('p.formula', {}, 'appended = delivered + dead + pending'),
      last ? [
        h('p', {}, last.error ? badge('warn', 'warn', 'Incomplete', last.error)
          : last.balanced ? badge('good', 'check', 'Balanced') : badge('bad', 'cross', 'Not balanced'),
        ' ', h('span.dim', {}, 'verified ', ago(last.ended_at), ` by ${last.operator}`)),
        last.error && h('p.hint', {}, last.error),
        h('ul.plain', {}, last.outboxes.map((ledger) => h('li.row', {},
          h('span.grow', {}, ledger.balanced ? '' : badge('bad', 'cross', 'Not balanced'), ' ', ledger.outbox),
          h('span.ledger-line', {}, number(ledger.appended.count), ' = ', number(ledger.delivered.count), ' + ', number(ledger.dead.count), ' + ', number(ledger.pending.count))))),
      ] : h('p.dim', {}, 'Not verified since this server started. Verification counts every live event, independently of the relays.'),
      running ? h('p', { role: 'status' }, 'Verifying for ', since(running))
        : may('operator') && act(h('button.button.small', { type: 'button' }, last ? 'Verify again' : 'Verify ledger'), async () => {
          await post('/reconcile');
          notice('Verifying the ledger. The result will appear here.');
          again();
        }),
    ],
  });
}

/** The latency of a relay in words. */
export function latencyText(traffic) {
  if (traffic.latency_p99_ms === null) return 'nothing delivered in the last minute';
  return `${plural(traffic.delivered_in_minute, 'event')} in the last minute, p50 ${milliseconds(traffic.latency_p50_ms)}, p99 ${milliseconds(traffic.latency_p99_ms)}`;
}

