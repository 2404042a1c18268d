/** The body of a new annotation, as members and logging tokens send it. */

import { bodyOf } from '../../accounts/routes/body.ts';
import { ANNOTATION_KINDS, type NewAnnotation } from '../../apps/annotations.ts';
import { lengthProblem } from '../../apps/name.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { objectOf } from '../../http/operation.ts';
import type { Schema } from '../../http/query.ts';
import { parseBound } from '../iso-date.ts';
import { EARLIEST, LATEST } from '../scope-query.ts';

const CHARACTERS = 200;

const FIELDS = {
  text: { type: 'string', maxLength: 2 * CHARACTERS },
  kind: { type: 'string', enum: ANNOTATION_KINDS },
  at: { type: 'string', maxLength: 40, nullable: true },
  until: { type: 'string', maxLength: 40, nullable: true },
} as const;

// A misspelled `at` would be now.
const FORM = bodyOf(FIELDS, ['text'], 'refused');

const ISO_DATE = { examples: ['2026-11-20T14:27:00Z'] };

/** For the API's description. */
export const NEW_ANNOTATION: Schema = objectOf(
  {
    text: {
      type: 'string',
      minLength: 1,
      maxLength: CHARACTERS,
      description: 'What happened, such as `Release 2.4.1`.',
    },
    kind: { type: 'string', enum: [...ANNOTATION_KINDS], default: 'note' },
    at: {
      ...ISO_DATE,
      type: ['string', 'null'],
      description:
        'When it happened, or began; ISO 8601. Absent: now. Send it, and a repeated request adds nothing.',
    },
    until: {
      ...ISO_DATE,
      type: ['string', 'null'],
      description: 'When it ended; after `at`. Absent: it happened at one instant.',
    },
  },
  { title: 'NewAnnotation', optional: ['kind', 'at', 'until'] },
);

export function parseAnnotation(text: string, now: number): NewAnnotation | Rejection {
  const body = FORM(text);
  if (body instanceof Rejection) return body;
  const problem = lengthProblem(body.text) ?? (body.text.includes('\0') ? 'must not contain NUL' : null);
  if (problem !== null) return invalidField('text', problem);
  const at = instantOf(body.at);
  if (typeof at === 'string') return invalidField('at', at);
  const until = instantOf(body.until);
  if (typeof until === 'string') return invalidField('until', until);
  const start = at ?? now;
  if (until !== null && until <= start) return invalidField('until', 'must be after "at"');
  return {
    kind: ANNOTATION_KINDS.find((kind) => kind === body.kind) ?? 'note',
    at: new Date(start),
    until: until === null ? null : new Date(until),
    text: body.text,
  };
}

/** @returns the problem, worded to follow the field's name; null where the field is absent */
function instantOf(text: string | null | undefined): number | null | string {
  if (text === null || text === undefined || text === '') return null;
  const instant = parseBound(text, 'start');
  if (typeof instant === 'string') return instant;
  return instant < EARLIEST || instant >= LATEST ? 'must be in the years 1970 to 9998' : instant;
}
