// Charts as SVG: lines over time, sparklines and bars.
import { h, replace, s } from './dom.js';
import { tick, exactTime } from './time.js';

const HEIGHT = 150;
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 20;

/** The next round number: 1, 2 or 5 with zeros. */
function niceMax(value) {
  if (value <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * step).find((n) => n >= value);
}

/** Splits a line where samples are missing or too far apart to be connected. */
function segments(points, gap) {
  const all = [[]];
  points.forEach(([at, value], place) => {
    const broken = place > 0 && at - points[place - 1][0] > gap;
    if (value === null || value === undefined || broken) all.push([]);
    if (value !== null && value !== undefined) all.at(-1).push([at, value]);
  });
  return all.filter((part) => part.length);
}

/**
 * `update({ from, to, series: [{ name, tone, points: [[ms, value]], area }], gap })` redraws the chart.
 * `format` formats a value; the scale goes up to `least` or further.
 */
export function lineChart({ title, hint, format, unit = '', least = 0 }) {
  const picture = s('svg', { class: 'plot', role: 'img' });
  const legend = h('ul.legend', {});
  const readout = h('span.readout');
  const figure = h('figure.chart', {},
    h('figcaption', {}, h('span.chart-title', {}, title), readout, hint && h('span.chart-hint', {}, hint)),
    h('div.plot-box', {}, picture), legend);
  let data = null;
  let pointer = null;

  const draw = () => {
    const width = Math.max(220, Math.round(figure.clientWidth - 24) || 320);
    picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute('height', HEIGHT);
    if (!data) return;
    const { from, to, series, gap } = data;
    const values = series.flatMap(({ points }) => points.filter(([at]) => at >= from).map(([, v]) => v ?? 0));
    const max = niceMax(Math.max(...values, least));
    const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / max) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      parts.push(s('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(max * share), y2: y(max * share) }));
      parts.push(s('text', { class: 'axis', x: LEFT - 6, y: y(max * share) + 4, 'text-anchor': 'end' }, format(max * share)));
    }
    const ticks = Math.max(2, Math.min(6, Math.floor(width / 130)));
    for (let place = 0; place <= ticks; place += 1) {
      const at = from + ((to - from) * place) / ticks;
      const anchor = place === 0 ? 'start' : place === ticks ? 'end' : 'middle';
      parts.push(s('text', { class: 'axis', x: x(at), y: HEIGHT - 4, 'text-anchor': anchor }, tick(at, to - from)));
    }
    for (const { tone, points, area } of series) {
      for (const part of segments(points.filter(([at]) => at >= from - gap), gap)) {
        const line = part.map(([at, value]) => `${x(Math.max(at, from)).toFixed(1)},${y(value).toFixed(1)}`);
        if (area && part.length > 1) {
          const [first, last] = [x(Math.max(part[0][0], from)), x(part.at(-1)[0])];
          parts.push(s('polygon', { class: `area ${tone}`, points: `${first},${y(0)} ${line.join(' ')} ${last},${y(0)}` }));
        }
        parts.push(part.length > 1
          ? s('polyline', { class: `line ${tone}`, points: line.join(' ') })
          : s('circle', { class: `spot ${tone}`, cx: line[0].split(',')[0], cy: line[0].split(',')[1], r: 2.5 }));
      }
    }
    if (pointer !== null) {
      const at = Math.min(to, Math.max(from, from + ((pointer - LEFT) / (width - LEFT - RIGHT)) * (to - from)));
      parts.push(s('line', { class: 'hair', x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
      say(at);
    } else {
      replace(readout);
    }
    replace(picture, parts);
    const latest = series.map(({ name, points }) => `${name} ${format(points.at(-1)?.[1] ?? null)}${unit}`).join(', ');
    const highest = values.length ? `; highest ${format(Math.max(...values))}${unit}` : '';
    picture.setAttribute('aria-label', series.some(({ points }) => points.length) ? `${title}: now ${latest}${highest}` : `${title}: no data yet`);
  };

  const say = (at) => {
    const { series } = data;
    const nearest = (points) => points.reduce((best, point) => (
      !best || Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), null);
    const found = series.map(({ name, points }) => [name, nearest(points)]).filter(([, point]) => point);
    if (!found.length) return;
    replace(readout, `${exactTime(found[0][1][0])}: ${found.map(([name, [, value]]) => `${name} ${format(value ?? null)}${unit}`).join(', ')}`);
  };

  picture.addEventListener('pointermove', (event) => {
    pointer = event.offsetX;
    draw();
  });
  picture.addEventListener('pointerleave', () => {
    pointer = null;
    draw();
  });
  new ResizeObserver(draw).observe(figure);

  return {
    element: figure,
    update(next) {
      data = next;
      replace(legend, next.series.map(({ name, tone, points }) => h('li', {},
        h(`span.swatch.${tone}`, { 'aria-hidden': 'true' }), name, ' ',
        h('strong.num', {}, points.length ? format(points.at(-1)[1] ?? null) + unit : '–'))));
      draw();
    },
  };
}

/** A line without axes, as wide as its container. */
export function sparkline(values, label, tone = 'accent') {
  const [width, height] = [96, 24];
  const max = Math.max(...values, 1);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((value, place) => `${(place * step).toFixed(1)},${(height - 2 - (value / max) * (height - 4)).toFixed(1)}`);
  return s('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label, preserveAspectRatio: 'none' },
    values.length > 1
      ? [s('polygon', { class: `area ${tone}`, points: `0,${height} ${points.join(' ')} ${width},${height}` }), s('polyline', { class: `line ${tone}`, points: points.join(' ') })]
      : s('line', { class: 'grid', x1: 0, x2: width, y1: height - 2, y2: height - 2 }));
}

/** Counts by hour as bars. */
export function hourBars(hours, label) {
  const [width, height, shown] = [120, 26, 24];
  const last = hours.length ? Date.parse(hours.at(-1).hour) : Date.now();
  const counts = Array.from({ length: shown }, (_, place) => {
    const at = last - (shown - 1 - place) * 3_600_000;
    return hours.find(({ hour }) => Date.parse(hour) === at)?.count ?? 0;
  });
  const max = Math.max(...counts, 1);
  const bar = width / shown;
  return s('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label },
    s('line', { class: 'grid', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
    counts.map((count, place) => {
      const tall = count ? Math.max(2, (count / max) * (height - 2)) : 0;
      return s('rect', { class: 'bar', x: place * bar + 0.5, width: bar - 1, y: height - tall, height: tall });
    }));
}
