// Dialogs and notices. The browser's own <dialog> traps the focus and restores it.
import { freshId, h, replace } from './dom.js';

/**
 * Opens a dialog and resolves when it closes, with the result of `act`. The dialog stays open while
 * `act` runs, and shows its error. `fields` are elements with a `name`; `act` receives their values.
 */
export function ask({ title, text, fields = [], confirm, tone = 'primary', act, wide = false }) {
  return new Promise((resolve) => {
    const label = freshId('dialog');
    const error = h('div.dialog-error', { role: 'alert' });
    const submit = h(`button.button.${tone}`, { type: 'submit' }, confirm);
    const cancel = h('button.button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel');
    const form = h('form', {},
      h('h2', { id: label }, title),
      [text].flat().filter(Boolean).map((t) => (typeof t === 'string' ? h('p', {}, t) : t)),
      fields, error, h('div.dialog-actions', {}, cancel, submit));
    const dialog = h(`dialog${wide ? '.wide' : ''}`, { 'aria-labelledby': label }, form);
    let result;
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      replace(error);
      submit.disabled = true;
      submit.setAttribute('aria-busy', 'true');
      try {
        result = await act(Object.fromEntries(new FormData(form)), form);
        dialog.close();
      } catch (problem) {
        if (!problem.message) throw problem;
        replace(error, problem.message);
      } finally {
        submit.disabled = false;
        submit.removeAttribute('aria-busy');
      }
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A labelled field of a form. */
export function field(label, control, hint) {
  const id = freshId();
  control.id = id;
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`);
  return h('div.field', {}, h('label', { for: id }, label), control, hint && h('p.hint', { id: `${id}-hint` }, hint));
}

export function noteField(required = false) {
  return field(required ? 'Note' : 'Note (optional)',
    h('textarea', { name: 'note', rows: 2, maxlength: 1000, required, autofocus: true }),
    'Recorded in the audit trail.');
}

/** Shows a notice for a few seconds, with an Undo button if `undo` is given. */
export function notice(text, { tone = 'good', undo, link } = {}) {
  const place = document.getElementById('notices');
  const close = () => line.remove();
  const line = h(`div.notice.${tone}`, {}, h('span', {}, text),
    link && h('a', { href: link.href, on: { click: close } }, link.text),
    undo && h('button.link', { type: 'button', on: { click: async () => {
      close();
      try {
        notice(await undo());
      } catch (problem) {
        notice(problem.message, { tone: 'bad' });
      }
    } } }, 'Undo'),
    h('button.close', { type: 'button', 'aria-label': 'Dismiss', on: { click: close } }, '×'));
  place.append(line);
  while (place.children.length > 4) place.firstElementChild.remove();
  setTimeout(close, undo ? 20_000 : 8_000);
}

/** Runs `work` when the button is clicked, and shows its error as a notice. */
export function act(button, work) {
  button.addEventListener('click', async () => {
    if (button.getAttribute('aria-busy')) return;
    button.setAttribute('aria-busy', 'true');
    try {
      await work();
    } catch (problem) {
      notice(problem.message, { tone: 'bad' });
    } finally {
      button.removeAttribute('aria-busy');
    }
  });
  return button;
}
