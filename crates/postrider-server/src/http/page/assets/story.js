// The parts that the pages of an event and of a dead letter share.
import { h } from './dom.js';
import { act, notice } from './dialog.js';
import { bytes, milliseconds } from './format.js';
import { hashBadge, shape } from './signs.js';
import { moment, ago } from './time.js';

/** One step of the timeline: when, what, and details. */
export function step(tone, form, at, title, ...more) {
  return h(`li.step.${tone}`, {}, h('span.step-mark', {}, shape(form)),
    h('div.step-body', {}, h('div.step-head', {}, h('strong', {}, title), at && h('span.dim', {}, ago(at))), at && h('div.step-time', {}, moment(at)), more));
}

export function attemptSteps(attempts) {
  return attempts.map((attempt) => step('warn', 'warn', attempt.failed_at, `Attempt ${attempt.attempt} failed after ${milliseconds(attempt.took_ms)}`,
    h('pre.error', { tabindex: 0, 'aria-label': `Error of attempt ${attempt.attempt}` }, attempt.error), h('div.dim.small-text', {}, `by relay ${attempt.relay_id}`)));
}

export const timeline = (steps) => h('ol.timeline', {}, steps);

/** The deepest level of JSON that is indented further. */
const INDENTED_MAX = 40;

/** Adds line breaks to JSON; returns anything else unchanged. Tokens stay as they were written: a parser
 *  would round large numbers and drop repeated names, and what is shown here may be sent again. */
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  // Deeper levels are not indented further: 15,000 levels would need 450 MB of spaces.
  const line = () => `\n${'  '.repeat(Math.min(depth, INDENTED_MAX))}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  return tokens.map((token, place) => {
    const opens = token === '{' || token === '[';
    const closes = token === '}' || token === ']';
    const before = tokens[place - 1];
    if (closes) depth -= 1;
    const newLine = closes ? before !== '{' && before !== '[' : before === ',' || before === '{' || before === '[';
    const written = `${newLine ? line() : ''}${token}${token === ':' ? ' ' : ''}`;
    if (opens) depth += 1;
    return written;
  }).join('');
}

export function copyButton(text, label = 'Copy') {
  return act(h('button.button.small', { type: 'button' }, label), async () => {
    await copy(text);
    notice('Copied.');
  });
}

/** Browsers offer the clipboard only over TLS and on localhost; elsewhere the old command is used. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h('textarea', { class: 'sr' });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** The destination's response, if it was kept. */
export function responseSection(response) {
  if (typeof response !== 'string') return null;
  return h('section.panel', { 'aria-label': 'Response' },
    h('div.panel-head', {}, h('h2', {}, 'Response'), h('span.dim', {}, bytes(new TextEncoder().encode(response).length)), copyButton(response)),
    h('pre.payload', { tabindex: 0, 'aria-label': 'Response' }, pretty(response) || '(empty)'));
}

/** Payload, headers and hash. */
export function contentSection(content, size) {
  const headers = content.headers && typeof content.headers === 'object' ? Object.entries(content.headers) : null;
  const text = pretty(content.payload);
  return h('section.panel', { 'aria-label': 'Content' },
    h('div.panel-head', {}, h('h2', {}, 'Payload'), h('span.dim', {}, bytes(size)), hashBadge(content.hash), copyButton(content.payload)),
    h('pre.payload', { tabindex: 0, 'aria-label': 'Payload' }, text || '(empty)'),
    content.content_hash && h('p.hint.mono.break', {}, `SHA-256 ${content.content_hash}`),
    h('h3', {}, 'Headers'),
    headers?.length ? h('dl.facts', {}, headers.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd.mono.break', {}, typeof value === 'string' ? value : JSON.stringify(value)))))
      : h('p.dim', {}, typeof content.headers === 'string' ? content.headers : 'No headers.'));
}
