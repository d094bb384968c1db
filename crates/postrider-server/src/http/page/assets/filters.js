// Filter forms. The values of the fields are in the address.
import { freshId, h, replace } from './dom.js';
import { query, setQuery } from './router.js';

/** Converts the local time of a form field to the server's format, and back. */
const toServer = (local) => (local ? new Date(local).toISOString() : '');
const toLocal = (at) => {
  if (!at) return '';
  const date = new Date(at);
  return new Date(date - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
};

/**
 * `fields` are { name, label, type: 'text' | 'select' | 'time' | 'search', options?, suggestions?,
 * more? }; those with `more` are collapsed until they have a value.
 * Returns the form, a function that shows the values from the address, and one that sets suggestions.
 */
export function filterForm(fields, about) {
  const controls = new Map();
  const build = ({ name, label, type, options, suggestions, hint }) => {
    const id = freshId();
    let control;
    if (type === 'select') {
      control = h('select', { id, name }, options.map(([value, text]) => h('option', { value }, text)));
      control.addEventListener('change', apply);
    } else {
      const list = suggestions && `${id}-list`;
      control = h('input', { id, name, type: type === 'time' ? 'datetime-local' : type === 'search' ? 'search' : 'text', list, placeholder: hint, spellcheck: 'false', autocomplete: 'off', data: type === 'search' ? { search: '' } : {} });
    }
    controls.set(name, { control, type });
    return h('div.field.inline', {}, h('label', { for: id }, label), control,
      suggestions && h('datalist', { id: `${id}-list`, data: { suggest: name } }));
  };
  const read = () => Object.fromEntries([...controls].map(([name, { control, type }]) => [name, type === 'time' ? toServer(control.value) : control.value.trim()]));
  const apply = () => setQuery(read());
  const clear = h('button.link', { type: 'button', on: { click: () => setQuery({ ...Object.fromEntries([...controls.keys()].map((name) => [name, null])), fingerprint: null }) } }, 'Clear');
  const seldom = fields.filter(({ more }) => more);
  const details = h('details.more-filters', {}, h('summary', {}, 'More filters'), h('div.filters', {}, seldom.map(build)));
  const form = h('form.filter-form', { role: 'search', 'aria-label': about },
    h('div.filters', {}, fields.filter(({ more }) => !more).map(build),
      h('div.filter-actions', {}, h('button.button', { type: 'submit' }, 'Search'), clear)),
    seldom.length ? details : null);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    apply();
  });
  return {
    form,
    show(now = query()) {
      // The fingerprint is set by a link, not by a field.
      let any = Boolean(now.fingerprint);
      for (const [name, { control, type }] of controls) {
        const value = type === 'time' ? toLocal(now[name]) : now[name] ?? '';
        if (document.activeElement !== control) control.value = value;
        any ||= Boolean(now[name]);
      }
      clear.hidden = !any;
      if (seldom.some(({ name }) => now[name])) details.open = true;
    },
    suggest(name, values) {
      const list = form.querySelector(`datalist[data-suggest="${name}"]`);
      if (list) replace(list, values.map((value) => h('option', { value })));
    },
  };
}
