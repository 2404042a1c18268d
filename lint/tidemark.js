/** Rules of this project that no linter has, as a plugin for oxlint. */
import { errorListeners } from './error-listeners.js';
import { noComputedRegExp } from './no-computed-regexp.js';

export default {
  meta: { name: 'tidemark' },
  rules: { 'error-listeners': errorListeners, 'no-computed-regexp': noComputedRegExp },
};
