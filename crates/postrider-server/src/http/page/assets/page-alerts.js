// What is wrong now, and what was.
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
    h('p.hint', {}, 'As this server knows them, since its start. The oldest relay watches the tables of an outbox, each relay its own attempts.'),
    panel('What holds now', {
      signal, wide: true, load: async () => (await load()).active,
      draw: (active) => (active.length ? h('div.cards', {}, active.map(card))
        : empty('Nothing is wrong', 'When something is, it stands here, and goes to the channels that are configured.')),
    }),
    panel('What is over', {
      signal, wide: true, load: async () => (await load()).past,
      draw: (past) => (past.length ? h('div.cards', {}, past.map(card)) : empty('Nothing yet', 'The last 200 alerts that are over are kept until the server stops.')),
    }));
  return {};
}

function card(alert) {
  const holds = !alert.ended_at;
  return h(`article.card.alert.${alert.severity}`, {},
    h('div.card-head', {}, severityBadge(alert.severity), h('strong.grow', {}, alert.title),
      h('span.dim', {}, holds ? ['for ', since(alert.since)] : ago(alert.ended_at))),
    facts(Object.entries(alert.fields).map(([name, value]) => [name, linked(name, value)])),
    h('p.hint', {}, alert.kind, alert.count > 1 && `, ${exact(alert.count)} times`, ', first ', ago(alert.since)));
}

/** Long values wrap; nothing of them is markup. */
const linked = (name, value) => h(name.includes('id') ? 'span.break.mono' : 'span.break', {}, value);
