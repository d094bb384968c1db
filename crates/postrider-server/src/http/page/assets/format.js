// Formats numbers so that they stay readable, with the exact value on hover.
import { h } from './dom.js';

const EXACT = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const STEPS = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

export const exact = (value) => EXACT.format(value);

/** Exact up to 9,999; larger values as 12.3 k or 2.16 M. */
export function compact(value) {
  if (value === null || value === undefined) return '–';
  if (Math.abs(value) < 10_000) return exact(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const [step, unit] = STEPS.find(([step]) => Math.abs(value) >= step);
  return `${Number((value / step).toPrecision(3))} ${unit}`;
}

export function number(value, attributes = {}) {
  if (value === null || value === undefined) return h('span.num', attributes, '–');
  return h('span.num', { title: exact(value), ...attributes }, compact(value));
}

/** A count that may be a lower bound. */
export function count({ count: value, at_least: atLeast }) {
  const title = atLeast ? `At least ${exact(value)}; counting stopped at its limit` : exact(value);
  return h('span.num', { title }, compact(value) + (atLeast ? '+' : ''));
}

export function plural(value, one, many = `${one}s`) {
  return `${compact(value)} ${value === 1 ? one : many}`;
}

/** A rate per second: decimals only for small rates. */
export function rate(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  if (value < 0.01) return '<0.01';
  if (value < 10) return String(Number(value.toPrecision(2)));
  return compact(Math.round(value));
}

const UNITS = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];

/** A duration in two units at most: 4 s, 3 min 20 s, 2 h 5 min, 6 d 3 h. */
export function seconds(value) {
  if (value === null || value === undefined) return '–';
  const whole = Math.max(0, Math.round(value));
  const place = UNITS.findIndex(([size]) => whole >= size);
  if (place === -1) return '0 s';
  const [size, unit] = UNITS[place];
  const rest = UNITS[place + 1];
  const more = rest ? Math.floor((whole % size) / rest[0]) : 0;
  return `${Math.floor(whole / size)} ${unit}${more ? ` ${more} ${rest[1]}` : ''}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return '–';
  if (value < 10) return `${Number(value.toPrecision(2))} ms`;
  if (value < 1_000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${Number((value / 1_000).toPrecision(3))} s`;
  return seconds(value / 1_000);
}

export function bytes(value) {
  if (value < 1_024) return `${value} B`;
  if (value < 1_048_576) return `${Number((value / 1_024).toPrecision(3))} KiB`;
  return `${Number((value / 1_048_576).toPrecision(3))} MiB`;
}

/** The first line, truncated if it is long. */
export function brief(text, length = 160) {
  const line = (text ?? '').split('\n', 1)[0];
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
