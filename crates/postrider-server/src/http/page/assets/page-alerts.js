// Active and resolved alerts.
import { get } from './api.js';
import { h } from './dom.js';
import { panel } from './panels.js';
import { exact } from './format.js';
import { severityBadge } from './signs.js';
import { empty } from './states.js';
import { facts } from './table.js';
import { ago, since } from './time.js';

export function alerts({ outlet, signal }) {
  const load = async () => get('/alerts', {}, signal);
  outlet.append(
    h('div.page-head', {}, h('h1', {}, 'Alerts')),
    h('p.hint', {}, 'Alerts that this server has seen since it started. The oldest relay monitors the tables of each outbox; every relay monitors its own attempts.'),
    panel('Active', {
      signal, wide: true, load: async () => (await load()).active,
      draw: (active) => (active.length ? h('div.cards', {}, active.map(card))
        : empty('No active alerts', 'New alerts appear here and are sent to the configured channels.')),
    }),
    panel('Resolved', {
      signal, wide: true, load: async () => (await load()).past,
      draw: (past) => (past.length ? h('div.cards', {}, past.map(card)) : empty('No resolved alerts', 'The last 200 resolved alerts are kept until the server stops.')),
    }));
  return {};
}

function card(alert) {
  const active = !alert.ended_at;
  return h(`article.card.alert.${alert.severity}`, {},
    h('div.card-head', {}, severityBadge(alert.severity), h('strong.grow', {}, alert.title),
      h('span.dim', {}, active ? ['for ', since(alert.since)] : ago(alert.ended_at))),
    facts(Object.entries(alert.fields).map(([name, value]) => [name, linked(name, value)])),
    h('p.hint', {}, alert.kind, alert.count > 1 && `, ${exact(alert.count)} times`, ', first seen ', ago(alert.since)));
}

/** A value that wraps if it is long; it is never markup. */
const linked = (name, value) => h(name.includes('id') ? 'span.break.mono' : 'span.break', {}, value);
