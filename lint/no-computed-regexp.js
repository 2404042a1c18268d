/** A regular expression that is put together when the program runs cannot be checked before: none is. */
export const noComputedRegExp = {
  meta: { type: 'problem' },
  create(context) {
    const check = (node) => {
      if (node.callee.type !== 'Identifier' || node.callee.name !== 'RegExp') return;
      context.report({ node, message: 'Write the expression as a literal: a computed one is not checked.' });
    };
    return { NewExpression: check, CallExpression: check };
  },
};
