/** Compiles the templates of the dashboard at build time: the calls that htm would make, so that browsers load and run no parser of them. */
import * as loaded from 'htm';

/** A node of a syntax tree, as ESTree has it: what of it is read here. */
interface Place {
  readonly start: number;
  readonly end: number;
}
interface Template extends Place {
  readonly quasi: {
    readonly quasis: readonly { readonly value: { readonly cooked: string } }[];
    readonly expressions: readonly Place[];
  };
}

/**
 * Returns the code of a module with its templates, html`…`, as calls of the function that html is bound to.
 * @param tree the syntax tree of the code
 * @param element the name of that function in the code that is returned
 */
export function compileTemplates(code: string, tree: Place, element: string): string {
  return replaced(code, tree, element);
}

function replaced(code: string, within: Place, element: string): string {
  let [text, at] = ['', within.start];
  for (const template of outermost(within)) {
    const { quasis, expressions } = template.quasi;
    const values = expressions.map((expression) => replaced(code, expression, element));
    const texts = quasis.map(({ value }) => value.cooked);
    text += code.slice(at, template.start) + compiled(texts, values, element);
    at = template.end;
  }
  return text + code.slice(at, within.end);
}

/** The templates in a node, or the node itself, that are in no other one of it, in order. */
function outermost(node: unknown): Template[] {
  if (typeof node !== 'object' || node === null) return [];
  const { type, tag } = node as { type?: string; tag?: { name?: string } }; // As ESTree has it.
  if (type === 'TaggedTemplateExpression' && tag?.name === 'html') return [node as Template];
  return Object.values(node)
    .flatMap(outermost)
    .sort((a, b) => a.start - b.start);
}

type MakeElement<T> = (type: unknown, props: Record<string, unknown> | null, ...children: unknown[]) => T;

/** As it is: its types are those of CommonJS where Node loads a module. */
export const htm = loaded.default as unknown as {
  readonly bind: <T>(make: MakeElement<T>) => (texts: TemplateStringsArray, ...values: unknown[]) => T | T[];
};

/** Stands for a value in what htm reads; as part of a text, it is between two marks. */
class Value {
  readonly code: string;
  constructor(code: string) {
    this.code = code;
  }
  toString(): string {
    return `${MARK}${this.code}${MARK}`;
  }
}

const MARK = '\u0000';
const SPREAD = '...';

/** The code of one template: htm itself reads it. */
function compiled(texts: readonly string[], values: readonly string[], element: string): string {
  const given = values.map((code, index) => {
    const value = new Value(`(${code})`);
    // The value of a spread is an object whose members htm copies.
    return texts[index]?.endsWith(SPREAD) ? { [`${SPREAD}${index}`]: value } : value;
  });
  const call: MakeElement<Value> = (type, props, ...children) => {
    const members = Object.entries(props ?? {}).map(([name, value]) =>
      name.startsWith(SPREAD) ? `...${written(value)}` : `${JSON.stringify(name)}:${written(value)}`,
    );
    const rest = members.length === 0 ? ['null'] : [`{${members.join(',')}}`];
    return new Value(`${element}(${[written(type), ...rest, ...children.map(written)].join(',')})`);
  };
  const made = htm.bind(call)(Object.assign([...texts], { raw: texts }), ...given);
  return Array.isArray(made) ? `[${made.map(written).join(',')}]` : written(made);
}

/** Something of a template as code: a value, a text, or one with values in it. */
function written(part: unknown): string {
  if (part instanceof Value) return part.code;
  if (typeof part !== 'string' || !part.includes(MARK)) return JSON.stringify(part);
  const parts = part.split(MARK);
  return parts.map((text, index) => (index % 2 === 0 ? JSON.stringify(text) : text)).join('+');
}
