// Backlog, rate and latency of one outbox, from a quarter of an hour to a month.
import { get, outboxPath } from './api.js';
import { h, replace } from './dom.js';
import { live, watch } from './live.js';
import { compact, milliseconds, rate } from './format.js';
import { lineChart } from './chart.js';
import { poll } from './poll.js';
import { setQuery } from './router.js';
import { ago } from './time.js';

const MINUTE = 60_000;
/** Name, label, time span, which of the server's sample series to use, and the interval of its samples. */
const RANGES = [
  ['15m', '15 min', 15 * MINUTE, 'hour', 10_000],
  ['1h', '1 hour', 60 * MINUTE, 'hour', 10_000],
  ['6h', '6 hours', 360 * MINUTE, 'days', MINUTE],
  ['1d', '1 day', 1_440 * MINUTE, 'days', MINUTE],
  ['2d', '2 days', 2_880 * MINUTE, 'days', MINUTE],
  ['7d', '7 days', 7 * 1_440 * MINUTE, 'month', 15 * MINUTE],
  ['30d', '30 days', 30 * 1_440 * MINUTE, 'month', 15 * MINUTE],
];

export function charts(query, signal) {
  const backlog = lineChart({ title: 'Backlog', hint: 'waiting events, from the ledger', format: compact, least: 4 });
  const speed = lineChart({ title: 'Rate', hint: 'per second', format: rate, unit: '/s', least: 1 });
  const latency = lineChart({ title: 'Latency', hint: 'insert to delivery, all relays', format: milliseconds });
  const select = h('select', { 'aria-label': 'Outbox to chart' });
  const ranges = h('div.segments', { role: 'group', 'aria-label': 'Time range' });
  const covers = h('p.hint.covers');
  let [outbox, range, samples] = [null, RANGES[0], []];

  const names = () => live.snapshot?.outboxes.map((o) => o.name) ?? [];
  const choose = (next) => {
    outbox = names().includes(next.chart) ? next.chart : names()[0] ?? null;
    range = RANGES.find(([name]) => name === next.range) ?? RANGES[0];
    for (const button of ranges.children) button.setAttribute('aria-pressed', String(button.dataset.range === range[0]));
    if (select.value !== outbox) select.value = outbox ?? '';
    samples = [];
    load();
  };
  const draw = () => {
    if (!outbox) return;
    const [, , span, , apart] = range;
    const to = live.snapshot ? Date.parse(live.snapshot.at) : Date.now();
    const points = merged(samples, outbox, apart);
    // After a start, the axis covers only the time since then, so that the chart is not mostly empty.
    const from = Math.max(to - span, Math.min((points[0]?.at ?? to), to - 2 * MINUTE));
    const frame = { from, to, gap: apart * 4 };
    const series = (name, tone, of, area) => ({ name, tone, area, points: points.map((p) => [p.at, of(p)]) });
    backlog.update({ ...frame, series: [series('waiting', 'accent', (p) => p.pending, true), series('in flight', 'second', (p) => p.in_flight)] });
    speed.update({ ...frame, series: [
      { name: 'delivered', tone: 'accent', area: true, points: speeds(points, 'delivered') },
      { name: 'appended', tone: 'second', points: speeds(points, 'appended') },
      series('failed', 'bad', (p) => p.failed_per_s),
    ] });
    latency.update({ ...frame, series: [series('p50', 'second', (p) => p.latency_p50_ms), series('p99', 'accent', (p) => p.latency_p99_ms)] });
    const first = points[0]?.at;
    if (first > to - span + 2 * apart) replace(covers, 'Samples begin when this server started, ', ago(new Date(first).toISOString()), '. Use Prometheus for a longer history.');
    else replace(covers);
  };
  const load = async () => {
    if (!outbox) return;
    const [wanted, asked] = [range, outbox];
    const found = await get(outboxPath(asked, 'history'), { span: range[3] }, signal);
    if (wanted !== range || asked !== outbox) return;
    samples = found.map((sample) => ({ ...sample, at: Date.parse(sample.at) }));
    draw();
  };

  replace(ranges, RANGES.map(([name, label]) => h('button.segment', { type: 'button', 'aria-pressed': 'false', data: { range: name }, on: { click: () => setQuery({ range: name === '15m' ? null : name }) } }, label)));
  select.addEventListener('change', () => setQuery({ chart: select.value }));
  let known = '';
  watch(() => {
    if (known !== names().join('\n')) {
      known = names().join('\n');
      replace(select, names().map((name) => h('option', { value: name }, name)));
      choose(query);
    }
    draw();
  }, signal);
  poll(load, 10_000, signal);

  const element = h('section.charts', { 'aria-label': 'Charts' },
    h('div.charts-head', {}, h('h2', {}, 'History'), select, ranges),
    h('div.charts-grid', {}, backlog.element, speed.element, latency.element), covers);
  return { element, choose: (next) => { query = next; choose(next); } };
}

/** The server's samples, followed by what the live stream has brought since the last of them. */
function merged(samples, outbox, apart) {
  const last = samples.at(-1)?.at ?? 0;
  const own = live.points.filter(({ at }) => at > last);
  const thin = apart > 10_000 ? own.slice(-1) : own;
  return samples.concat(thin.map(({ at, outboxes }) => {
    const now = outboxes.find((o) => o.name === outbox);
    return now && { at, ...now, ...now.traffic };
  }).filter(Boolean));
}

/** Events per second from each point to the next. */
function speeds(points, counter) {
  return points.slice(1).map((point, place) => {
    const before = points[place];
    const passed = (point.at - before.at) / 1_000;
    return [point.at, passed > 0 ? Math.max(0, (point[counter] - before[counter]) / passed) : 0];
  });
}
