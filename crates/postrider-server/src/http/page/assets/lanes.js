// What each relay works on: a picture of the 64 lanes, or the events that each relay has in flight.
import { h, s } from './dom.js';
import { exact, plural } from './format.js';
import { latencyText } from './panels.js';

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const COLUMNS = 16;
const CELL = 20;

/** A square for each lane with the letter of its relay, so that the colour is not needed to read it. */
export function lanesPicture(lanes, serving) {
  const letters = new Map(serving.map((relay, place) => [relay.relay_id, LETTERS[place % 26]]));
  const rows = Math.ceil(lanes.length / COLUMNS);
  const free = lanes.filter((lane) => !lane.relay_id).length;
  const words = serving.map((relay) => `${letters.get(relay.relay_id)} ${relay.host}: ${plural(relay.lanes.length, 'lane')}`).join('; ');
  const picture = s('svg', { class: 'lanes', viewBox: `0 0 ${COLUMNS * CELL} ${rows * CELL}`, role: 'img', 'aria-label': `${words}${free ? `; ${free} free` : ''}` },
    lanes.map((lane) => {
      const [x, y] = [(lane.lane % COLUMNS) * CELL, Math.floor(lane.lane / COLUMNS) * CELL];
      const letter = letters.get(lane.relay_id) ?? '';
      const shade = letter ? `owner${LETTERS.indexOf(letter) % 6}` : 'free';
      return s('g', {},
        s('title', {}, `lane ${lane.lane}: ${lane.relay_id ?? 'no owner'}${lane.crash_count ? `; consecutive crashes of its owners: ${lane.crash_count}` : ''}`),
        s('rect', { class: `lane ${shade}${lane.crash_count ? ' crashed' : ''}`, x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3 }),
        s('text', { class: 'lane-letter', x: x + CELL / 2, y: y + CELL / 2 + 4, 'text-anchor': 'middle' }, letter));
    }));
  return [picture, legend(serving, (relay) => letters.get(relay.relay_id), (relay) => `${plural(relay.lanes.length, 'lane')}, ${exact(relay.traffic.in_flight)} in flight`),
    free ? h('p.hint', {}, `${plural(free, 'free lane')}; a relay takes over free lanes at its next heartbeat.`) : null];
}

/** In claim mode rows, where relays compete: how many events each has in flight. */
export function relayShares(serving) {
  const most = Math.max(...serving.map((relay) => relay.traffic.in_flight), 1);
  return legend(serving, (_, place) => LETTERS[place % 26], (relay) => h('span.share', {},
    h('meter', { min: 0, max: most, value: relay.traffic.in_flight, 'aria-label': `in flight, ${relay.host}` }),
    h('span.num', {}, `${exact(relay.traffic.in_flight)} in flight`),
    relay.share && h('span.dim', {}, ` share ${relay.share.index + 1} of ${relay.share.of}`)));
}

function legend(serving, letter, words) {
  return h('ul.plain.relays', {}, serving.map((relay, place) => h('li.row', { title: relay.relay_id },
    h(`span.relay-letter.owner${place % 6}`, { 'aria-hidden': 'true' }, letter(relay, place)),
    h('span.grow', {}, h('strong', {}, relay.host), h('div.hint', {}, latencyText(relay.traffic))),
    h('span', {}, words(relay)))));
}
