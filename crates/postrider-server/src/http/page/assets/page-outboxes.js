// Outboxes and sinks: their settings, the relays that serve them, and pausing them.
import { get, outboxPath, post, put } from './api.js';
import { h, keyed, replace } from './dom.js';
import { live, watch } from './live.js';
import { ask, field, noteField, notice } from './dialog.js';
import { compact, exact, number, rate } from './format.js';
import { lanesPicture, relayShares } from './lanes.js';
import { panel } from './panels.js';
import { may } from './session.js';
import { badge, breakerBadge, outboxBadge } from './signs.js';
import { empty, skeleton } from './states.js';
import { facts, table } from './table.js';
import { ago, since } from './time.js';

export function outboxes({ outlet, signal }) {
  const list = h('div.outbox-list', {}, skeleton(6));
  outlet.append(
    h('div.page-head', {}, h('h1', {}, 'Outboxes and sinks')),
    h('section', { 'aria-label': 'Outboxes' }, list),
    panel('Sinks', {
      signal, wide: true, every: 3_000, load: () => get('/sinks', {}, signal),
      note: 'Destinations that this server has sent to since it started, those that are down first. Down: reported by any relay.',
      draw: (sinks, again) => h('div.cards', {}, sinks.map((sink) => sinkCard(sink, again))),
    }));
  let scrolled = false;
  watch(({ snapshot }) => {
    if (!snapshot) return;
    if (list.querySelector(':scope > .skeleton')) replace(list);
    keyed(list, snapshot.outboxes, (o) => o.name, (o) => outboxCard(o, signal), (card, o) => card.show(o));
    if (!scrolled && location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    scrolled = true;
  }, signal);
  return {};
}

function outboxCard(first, signal) {
  const state = h('span');
  const held = h('div');
  const buttons = h('div.card-actions');
  const about = h('div');
  const types = table({
    caption: `Event types of ${first.name}`, key: (row) => row.event_type,
    columns: [
      { label: 'Type', cell: (row) => row.event_type },
      { label: 'Appended', class: 'right', cell: (row) => number(row.appended) },
      { label: 'Delivered', class: 'right', cell: (row) => number(row.delivered) },
      { label: 'Dead', class: 'right', cell: (row) => number(row.dead) },
      { label: 'Pending', class: 'right', cell: (row) => number(row.appended - row.delivered - row.dead) },
    ],
  });
  const work = panel('Relays', {
    label: `Relays of ${first.name}`, signal, every: 3_000,
    load: async () => {
      const relays = await get('/relays', {}, signal);
      const serving = relays.filter((relay) => !relay.fenced).flatMap((relay) => relay.serving.filter((s) => s.outbox === first.name).map((s) => ({ relay_id: relay.relay_id, host: relay.host, ...s })));
      const claim = live.snapshot?.outboxes.find((o) => o.name === first.name)?.claim;
      const lanes = claim === 'lanes' ? await get(outboxPath(first.name, 'lanes'), {}, signal) : null;
      return { serving, lanes };
    },
    draw: ({ serving, lanes }) => (serving.length
      ? (lanes ? lanesPicture(lanes, serving) : relayShares(serving))
      : empty('No relays', 'Events wait until a relay with this outbox in its configuration is running.')),
  });
  const card = h('article.panel.outbox', { id: first.name, 'aria-label': `Outbox ${first.name}` },
    h('div.panel-head', {}, h('h2', {}, first.name), state, h('span.grow'), buttons),
    held,
    h('div.outbox-parts', {}, about, h('div.panel', {}, types.element), work));
  let shown = '';
  card.show = (outbox) => {
    const other = outbox.other_types;
    types.rows(other ? [...outbox.by_type, { ...other, event_type: `${number(other.types)} other types` }] : outbox.by_type);
    const { claim, paused, down, unresolved, preset, sink, branches, archives, table: name } = outbox;
    const key = JSON.stringify([claim, paused, down, unresolved > 0, preset, sink, outbox.pending > 0, Boolean(outbox.rates?.delivered_per_s)]);
    if (key === shown) return;
    shown = key;
    replace(state, outboxBadge(outbox));
    replace(held, paused && h('p.held', {}, badge('warn', 'pause', 'Paused'), ' for ', since(paused.paused_at), ` by ${paused.operator}`, paused.note && `: ${paused.note}`));
    replace(buttons, may('operator') && holdButton('outbox', outbox.name, paused), may('admin') && h('button.button.small', { type: 'button', on: { click: () => claimDialog(outbox) } }, 'Claim mode…'));
    replace(about, facts([
      ['Table', h('span.mono', {}, name)], ['Preset', preset],
      branches.length ? ['Fan-out to', branches.join(', ')] : ['Sink', sink],
      ['Claim mode', claim === 'lanes' ? 'lanes: events of one key stay in order' : 'rows: order not guaranteed'],
      ['After delivery', archives ? 'archived' : 'deleted'],
    ]));
  };
  return card;
}

/** Pauses or resumes; each is the Undo of the other. */
function holdButton(kind, name, paused, again = () => {}) {
  const path = kind === 'outbox' ? outboxPath(name) : `/sinks/${encodeURIComponent(name)}`;
  const [verb, word] = paused ? ['resume', 'Resume'] : ['pause', 'Pause'];
  return h(`button.button.small${paused ? '.primary' : ''}`, { type: 'button', on: { click: async () => {
    const done = await ask({
      title: `${word} ${kind} ${name}`, confirm: word, fields: [noteField(!paused)],
      text: paused ? 'Relays resume at their next heartbeat.' : 'At their next heartbeat, all relays finish what is in flight and start nothing new. Events wait; nothing is lost. The pause survives restarts.',
      act: ({ note }) => post(`${path}/${verb}`, { note }),
    });
    if (!done) return;
    notice(`${name} ${paused ? 'resumed' : 'paused'}.`, { undo: async () => {
      await post(`${path}/${paused ? 'pause' : 'resume'}`, { note: 'undone' });
      again();
      return `${name} ${paused ? 'paused' : 'resumed'}.`;
    } });
    again();
  } } }, `${word}…`);
}

function claimDialog(outbox) {
  const other = outbox.claim === 'lanes' ? 'rows' : 'lanes';
  return ask({
    title: `Claim mode of ${outbox.name}`, confirm: `Change to ${other}`,
    text: [`The current mode is ${outbox.claim}. In lanes, events of one key arrive in order, and each relay owns some of the 64 lanes. In rows, relays compete for rows, and order is not guaranteed.`,
      'All relays switch while they run; each first finishes what it has in flight. A relay that is configured for one mode stops serving the outbox in the other.'],
    fields: [field('Type the outbox name to confirm', h('input', { name: 'name', required: true, pattern: outbox.name, autocomplete: 'off' }))],
    act: async () => {
      await put(outboxPath(outbox.name, 'claim'), { claim: other });
      notice(`${outbox.name} is switching to ${other}.`);
      return true;
    },
  });
}

function sinkCard(sink, again) {
  const known = new Map(sink.destinations.map((d) => [`${d.outbox} ${d.destination}`, d]));
  for (const down of sink.down) {
    const seen = [...known.values()].find((d) => d.destination === down.destination);
    if (seen) Object.assign(seen, { down });
    else known.set(down.destination, { outbox: '', destination: down.destination, state: 'open', window: null, last_success_at: null, down });
  }
  const list = table({
    caption: `Destinations of ${sink.name}`, key: (d) => `${d.outbox} ${d.destination}`,
    columns: [
      { label: 'Breaker', cell: (d) => breakerBadge(d.down && d.state === 'closed' ? 'open' : d.state) },
      { label: 'Destination', class: 'wide', cell: (d) => h('span', {}, h('span.mono.break', {}, d.destination), d.down && h('div.hint', {}, 'down for ', since(d.down.since), `: ${d.down.error}`)) },
      { label: 'Outbox', cell: (d) => d.outbox || 'another relay' },
      { label: 'Concurrency', class: 'right', cell: (d) => (d.window === null ? 'no limit' : compact(d.window)) },
      { label: 'Last success', cell: (d) => ago(d.last_success_at, 'never') },
    ],
  });
  list.rows([...known.values()]);
  const up = sink.paused ? badge('warn', 'pause', 'Paused') : sink.up ? badge('good', 'dot', 'Up') : badge('bad', 'cross', 'Down');
  return h('article.card.sink', { 'aria-label': `Sink ${sink.name}` },
    h('div.card-head', {}, h('h3', {}, sink.name), up, h('span.dim', {}, `from ${sink.outboxes.join(', ')}`), h('span.grow'),
      h('span.dim', { title: sink.rate ? `${exact(sink.rate.events_per_s)} events per second, burst of ${exact(sink.rate.burst)}` : '' }, sink.rate ? `rate limit ${rate(sink.rate.events_per_s)}/s, burst ${compact(sink.rate.burst)}` : 'no rate limit'),
      may('operator') && holdButton('sink', sink.name, sink.paused, again)),
    sink.paused && h('p.held', {}, 'Paused for ', since(sink.paused.paused_at), ` by ${sink.paused.operator}`, sink.paused.note && `: ${sink.paused.note}`),
    known.size ? list.element : h('p.dim', {}, 'This server has not sent anything to it since it started.'));
}
