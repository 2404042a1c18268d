/** A field of a JSON object by its name, which may be dotted. */
import { JsonScan } from '../../json/scan.ts';

const OPEN_BRACE = 0x7b;

/** Most characters of a name, and most dots: each may read its part of the object once more. */
export const MAX_FIELD_NAME = 200;
const MAX_DOTS = 10;

/** Whether a name is one that {@link Field} takes. */
export function isFieldName(name: string): boolean {
  return name !== '' && name.length <= MAX_FIELD_NAME && name.split('.').length <= MAX_DOTS + 1;
}

/** `a.b` is the member `a.b` of an object, or else the member `b` of its member `a`. */
export class Field {
  readonly name: string;
  /** The members of an object that a scan has to find. */
  readonly members: readonly string[];
  readonly #first: string | null = null;
  readonly #rest: Field | null = null;
  readonly #scan: JsonScan | null = null;

  constructor(name: string) {
    this.name = name;
    const dot = name.indexOf('.');
    if (dot > 0 && dot < name.length - 1) {
      this.#first = name.slice(0, dot);
      this.#rest = new Field(name.slice(dot + 1));
      this.#scan = new JsonScan(this.#rest.members);
    }
    this.members = this.#first === null ? [name] : [name, this.#first];
  }

  /** The JSON text of the field. @param scan of an object, done, for {@link members}; null if the object has none */
  in(scan: JsonScan): string | null {
    const value = scan.member(this.name);
    if (value !== null || this.#first === null || this.#rest === null || this.#scan === null) return value;
    const outer = scan.member(this.#first);
    if (outer === null || outer.charCodeAt(0) !== OPEN_BRACE) return null;
    this.#scan.begin(outer, 0);
    this.#scan.step(outer.length);
    return this.#rest.in(this.#scan);
  }
}
