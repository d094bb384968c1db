// Exchanges a token for a session. The dashboard does not keep the token.
import { signIn } from './api.js';
import { h, replace } from './dom.js';
import { field } from './dialog.js';
import { brand } from './frame.js';

export function signInView(reason, entered) {
  const error = h('div.dialog-error', { role: 'alert' });
  const token = h('input', { type: 'password', name: 'token', required: true, autocomplete: 'current-password', spellcheck: 'false', autofocus: true });
  const button = h('button.button.primary', { type: 'submit' }, 'Sign in');
  const form = h('form.sign-in', {},
    brand(),
    h('h1', {}, 'Sign in'),
    reason && h('p', {}, reason),
    field('Token', token, 'The dashboard keeps a session, not the token. The session ends when you sign out or after a period of inactivity.'),
    error, button,
    h('details', {}, h('summary', {}, 'I have no token'),
      h('p', {}, 'Ask the person who runs the server to create one, and to add the line that this command prints to the tokens file:'),
      h('pre', {}, 'postrider token new --name you --role viewer')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.setAttribute('aria-busy', 'true');
    replace(error);
    try {
      await signIn(token.value.trim());
      await entered();
    } catch (problem) {
      replace(error, problem.status === 401 ? 'Invalid or expired token.' : problem.message);
      token.focus();
    } finally {
      button.removeAttribute('aria-busy');
    }
  });
  return h('main.sign-in-page', { id: 'main' }, form);
}
