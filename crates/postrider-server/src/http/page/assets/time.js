// Times in the user's time zone: relative in the text, exact on hover and in the `datetime` attribute.
import { h, setText } from './dom.js';
import { seconds } from './format.js';

const EXACT = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric', month: 'short', day: '2-digit', hour: '2-digit', minute: '2-digit',
  second: '2-digit', fractionalSecondDigits: 3, timeZoneName: 'short',
});
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const HOUR = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** The server's clock minus this one, so that a recent event is not shown as "in 3 min". */
let ahead = 0;

export function serverTime(at) {
  ahead = Date.parse(at) - Date.now();
}

export const now = () => Date.now() + ahead;
export const exactTime = (at) => EXACT.format(new Date(at));
export const clock = (at) => CLOCK.format(new Date(at));

/** A label on the time axis. */
export function tick(at, span) {
  const date = new Date(at);
  if (span > 2 * 86_400_000) return DAY.format(date);
  return span > 20 * 60_000 ? HOUR.format(date) : CLOCK.format(date);
}

function relative(at) {
  const passed = (now() - Date.parse(at)) / 1_000;
  if (Math.abs(passed) < 1) return 'just now';
  return passed > 0 ? `${seconds(passed)} ago` : `in ${seconds(-passed)}`;
}

/** A `<time>` such as "3 min ago", or the text `absent` if there is no time. */
export function ago(at, absent = '–') {
  if (!at) return h('span', {}, absent);
  return h('time', { datetime: at, title: exactTime(at), data: { relative: '' } }, relative(at));
}

/** How long ago something began, as a duration. */
export function since(at) {
  return h('time', { datetime: at, title: `since ${exactTime(at)}`, data: { lasting: '' } },
    seconds((now() - Date.parse(at)) / 1_000));
}

/** The exact moment as text. */
export function moment(at) {
  return h('time', { datetime: at, title: relative(at) }, exactTime(at));
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll('time[data-relative]')) setText(element, relative(element.dateTime));
  for (const element of document.querySelectorAll('time[data-lasting]')) {
    setText(element, seconds((now() - Date.parse(element.dateTime)) / 1_000));
  }
}, 1_000);
