// Creates elements without templates: text is always text, so nothing in an event can become markup.

const SVG = 'http://www.w3.org/2000/svg';

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === 'on') {
    for (const [kind, listener] of Object.entries(value)) element.addEventListener(kind, listener);
  } else if (name === 'data') {
    Object.assign(element.dataset, value);
  } else if (value === true) {
    element.setAttribute(name, '');
  } else {
    element.setAttribute(name, value);
  }
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** `h('p.note', { title: '…' }, 'text', child)` */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  return build(element, attributes, children);
}

/** The same for SVG elements. */
export function s(name, attributes, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** Changes the text only if it differs, to leave selections and screen readers undisturbed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Updates the children of `parent` to match `items` and reuses existing elements, so that an element
 * stays under the pointer while it is clicked, and the focus does not move.
 */
export function keyed(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    update?.(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const gone of known.values()) gone.remove();
}

let ids = 0;

/** Returns an ID that connects a label to its field. */
export function freshId(prefix = 'f') {
  ids += 1;
  return `${prefix}${ids}`;
}
