// Actions on one dead letter, or on the selected ones.
import { outboxPath, post } from './api.js';
import { h } from './dom.js';
import { ask, field, noteField, notice } from './dialog.js';
import { plural } from './format.js';
import { pretty } from './story.js';

const path = (outbox, id, verb) => outboxPath(outbox, 'dead-letters', id, verb);

export async function retry(outbox, id) {
  const done = await ask({
    title: `Retry dead letter ${id}`, confirm: 'Retry', fields: [noteField()],
    text: 'It is appended as a new event with the same event ID and the retry count reset.',
    act: ({ note }) => post(path(outbox, id, 'retry'), { note }),
  });
  if (done) notice(`Dead letter ${id} was retried`, { link: { href: `/events/${encodeURIComponent(outbox)}/${done.retried_as}`, text: `as event #${done.retried_as}` } });
  return done;
}

export async function resolve(outbox, id, changed) {
  const done = await ask({
    title: `Resolve dead letter ${id}`, confirm: 'Resolve', fields: [noteField(true)],
    text: 'It is marked as resolved, and nothing is sent. You can reopen it later.',
    act: ({ note }) => post(path(outbox, id, 'resolve'), { note }),
  });
  if (done) notice(`Dead letter ${id} resolved.`, { undo: () => reopenNow(outbox, id, changed) });
  return done;
}

export async function reopen(outbox, id) {
  const done = await ask({
    title: `Reopen dead letter ${id}`, confirm: 'Reopen', fields: [noteField()],
    text: 'It becomes unresolved again. The audit trail keeps both actions.',
    act: ({ note }) => post(path(outbox, id, 'reopen'), { note }),
  });
  if (done) notice(`Dead letter ${id} reopened.`);
  return done;
}

async function reopenNow(outbox, id, changed) {
  await post(path(outbox, id, 'reopen'), { note: 'undone' });
  changed?.();
  return `Dead letter ${id} reopened.`;
}

/** Appends an edited copy: a new event with a new event ID and hash, linked to the original. */
export async function editAndResend(outbox, { dead_letter: letter, content }) {
  const shown = pretty(content.payload);
  const payload = h('textarea.code', { name: 'payload', rows: 14, spellcheck: 'false' });
  payload.value = shown;
  const warning = h('p.hint', { role: 'status' });
  payload.addEventListener('input', () => {
    try {
      JSON.parse(payload.value);
      warning.textContent = '';
    } catch (error) {
      warning.textContent = `Not valid JSON: ${error.message}. You can still send it.`;
    }
  });
  const text = (label, name, value) => field(label, h('input', { name, value, spellcheck: 'false' }));
  const done = await ask({
    title: `Edit and resend dead letter ${letter.id}`, confirm: 'Send', wide: true,
    text: 'Appends a new event with a new event ID and a new hash. A header identifies the original.',
    fields: [
      field('Payload', payload), warning,
      h('div.field-row', {}, text('Type', 'event_type', letter.event_type), text('Aggregate type', 'aggregate_type', letter.aggregate_type), text('Aggregate ID', 'aggregate_id', letter.aggregate_id)),
      noteField(),
    ],
    act: (values) => {
      const changed = Object.fromEntries(['event_type', 'aggregate_type', 'aggregate_id'].filter((name) => values[name] !== letter[name]).map((name) => [name, values[name]]));
      // A form changes line endings. A payload that was not edited is sent as it was stored.
      const body = values.payload.replace(/\r\n/g, '\n');
      if (body !== shown) changed.payload = body;
      return post(path(outbox, letter.id, 'resend'), { ...changed, note: values.note });
    },
  });
  if (done) notice('The edited copy was appended', { link: { href: `/events/${encodeURIComponent(outbox)}/${done.retried_as}`, text: `as event #${done.retried_as}` } });
  return done;
}

/** Acts on the selected dead letters one by one. A failure is reported and does not stop the rest. */
export async function actOnPicked(verb, outbox, ids, changed) {
  const failed = [];
  const worked = [];
  const progress = h('progress', { max: ids.length, value: 0, 'aria-label': 'Progress' });
  const done = await ask({
    title: `${verb === 'retry' ? 'Retry' : 'Resolve'} ${plural(ids.length, 'dead letter')}`, confirm: verb === 'retry' ? 'Retry' : 'Resolve',
    text: progress, fields: [noteField(verb === 'resolve')],
    act: async ({ note }) => {
      for (const id of ids) {
        try {
          await post(path(outbox, id, verb), { note });
          worked.push(id);
        } catch (problem) {
          if (problem.offline || problem.status === 401) throw problem;
          failed.push(`${id}: ${problem.message}`);
        }
        progress.value += 1;
      }
      return true;
    },
  });
  changed();
  if (!done) return;
  const undo = verb === 'resolve' && worked.length ? async () => {
    let back = 0;
    // Only what was resolved here, not what someone else had already resolved.
    for (const id of worked) await post(path(outbox, id, 'reopen'), { note: 'undone' }).then(() => { back += 1; }, () => {});
    changed();
    return `${plural(back, 'dead letter')} reopened.`;
  } : undefined;
  notice(`${plural(worked.length, 'dead letter')} ${verb === 'retry' ? 'retried' : 'resolved'}.`, { undo });
  if (failed.length) notice(failed.slice(0, 3).join(' '), { tone: 'bad' });
}
