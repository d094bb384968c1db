// Keyboard shortcuts. They are off while the focus is in a field or a dialog.
import { h } from './dom.js';
import { navigate } from './router.js';

const GO = { o: '/', e: '/events', d: '/dead-letters', s: '/outboxes', a: '/alerts', u: '/audit' };
const LIST = [
  ['?', 'Show this list'],
  ['/', 'Focus the search field'],
  ['g o', 'Overview'], ['g e', 'Events'], ['g d', 'Dead letters'], ['g s', 'Outboxes and sinks'],
  ['g a', 'Alerts'], ['g u', 'Audit'],
  ['Esc', 'Close the dialog'],
];
let waiting = null;

export function shortcuts() {
  if (document.querySelector('dialog[open]')) return;
  const close = h('button.button', { type: 'button', autofocus: true, on: { click: () => dialog.close() } }, 'Close');
  const dialog = h('dialog', { 'aria-labelledby': 'shortcuts' },
    h('h2', { id: 'shortcuts' }, 'Keyboard shortcuts'),
    h('dl.keys', {}, LIST.map(([keys, what]) => h('div', {}, h('dt', {}, keys.split(' ').map((k) => h('kbd', {}, k))), h('dd', {}, what)))),
    h('div.dialog-actions', {}, close));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.('input, textarea, select, dialog')) return;
  if (waiting) {
    clearTimeout(waiting);
    waiting = null;
    if (GO[event.key]) {
      event.preventDefault();
      navigate(GO[event.key]);
    }
    return;
  }
  if (event.key === '?') {
    event.preventDefault();
    shortcuts();
  } else if (event.key === '/') {
    const search = document.querySelector('[data-search]');
    if (!search) return;
    event.preventDefault();
    search.focus();
  } else if (event.key === 'g') {
    waiting = setTimeout(() => { waiting = null; }, 1_500);
  }
});
