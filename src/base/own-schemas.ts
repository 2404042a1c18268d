/**
 * Options of Ajv for schemas that stand in the code, which is strict with their keywords. They are not checked against the
 * schema of schemas: to compile that one, once for each instance, was a tenth of the CPU of a start.
 */
export const OWN_SCHEMAS = { strict: true, meta: false, validateSchema: false } as const;
