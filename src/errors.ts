/** Every refusal of the service, in one table. */

interface Refusal {
  /** The machine-readable `code` of the answer. */
  readonly code: string;
  readonly status: number;
  /** The short `error` text of the answer, as the API's contract defines it where it does. */
  readonly error: string;
  /** Whether the same request may succeed later: the answer then has `Retry-After`. */
  readonly retryable?: boolean;
}

/** Every refusal by its internal name. The first part is the closed list of `/public` and `/v1`. */
export const REFUSALS = {
  invalidBody: { code: 'INVALID_REQUEST', status: 400, error: 'Invalid request body' },
  invalidParameters: { code: 'INVALID_REQUEST', status: 400, error: 'Invalid request parameters' },
  batchRefused: { code: 'BATCH_REFUSED', status: 400, error: 'Batch refused' },
  // Only where an owner has attached a schema that refuses; the text is the contract's for a payload that is refused.
  schemaViolation: { code: 'SCHEMA_VIOLATION', status: 400, error: 'Invalid request body' },
  // Only for a time that the producer gives; the text is the contract's for a body that is refused.
  eventInFuture: { code: 'EVENT_IN_FUTURE', status: 400, error: 'Invalid request body' },
  tooManyEventTypes: { code: 'TOO_MANY_EVENT_TYPES', status: 400, error: 'Too many event types' },
  invalidLoggingToken: { code: 'AUTH_INVALID_TOKEN', status: 401, error: 'Invalid logging token' },
  invalidResourceToken: { code: 'AUTH_INVALID_TOKEN', status: 401, error: 'Invalid resource token' },
  invalidBrowserKey: { code: 'AUTH_INVALID_TOKEN', status: 401, error: 'Invalid browser key' },
  invalidManagementToken: { code: 'AUTH_INVALID_TOKEN', status: 401, error: 'Invalid management token' },
  accessDenied: { code: 'ACCESS_DENIED', status: 403, error: 'Access denied' },
  appNotFound: { code: 'APP_NOT_FOUND', status: 404, error: 'App not found' },
  eventTypeNotFound: { code: 'EVENT_TYPE_NOT_FOUND', status: 404, error: 'Event type not found' },
  eventNotFound: { code: 'EVENT_NOT_FOUND', status: 404, error: 'Event not found' },
  consumerNotFound: { code: 'CONSUMER_NOT_FOUND', status: 404, error: 'Consumer not found' },
  notFound: { code: 'NOT_FOUND', status: 404, error: 'Not found' },
  methodNotAllowed: { code: 'METHOD_NOT_ALLOWED', status: 405, error: 'Method not allowed' },
  consumerLeased: { code: 'CONSUMER_LEASED', status: 409, error: 'Consumer is leased', retryable: true },
  consumerLost: { code: 'CONSUMER_LOST', status: 409, error: 'Consumer has lost its place' },
  applyFailed: { code: 'APPLY_FAILED', status: 409, error: 'Configuration not applied' },
  leaseOver: { code: 'LEASE_OVER', status: 409, error: 'Lease is over' },
  payloadTooLarge: { code: 'PAYLOAD_TOO_LARGE', status: 413, error: 'Payload too large' },
  unsupportedMediaType: { code: 'UNSUPPORTED_MEDIA_TYPE', status: 415, error: 'Unsupported media type' },
  unsupportedEncoding: { code: 'UNSUPPORTED_ENCODING', status: 415, error: 'Unsupported content encoding' },
  idempotencyKeyReused: { code: 'IDEMPOTENCY_KEY_REUSED', status: 422, error: 'Idempotency key reused' },
  rateLimitExceeded: {
    code: 'RATE_LIMIT_EXCEEDED',
    status: 429,
    error: 'Rate limit exceeded',
    retryable: true,
  },
  tooManyExports: { code: 'TOO_MANY_EXPORTS', status: 429, error: 'Too many exports', retryable: true },
  tooManyQueries: { code: 'TOO_MANY_QUERIES', status: 429, error: 'Too many queries', retryable: true },
  tooManyLiveFeeds: {
    code: 'TOO_MANY_LIVE_FEEDS',
    status: 429,
    error: 'Too many live feeds',
    retryable: true,
  },
  internalError: { code: 'INTERNAL_ERROR', status: 500, error: 'Internal server error', retryable: true },
  unavailable: { code: 'UNAVAILABLE', status: 503, error: 'Service unavailable', retryable: true },
  outcomeUnknown: { code: 'OUTCOME_UNKNOWN', status: 503, error: 'Outcome unknown', retryable: true },

  // Only under /api.
  confirmationMismatch: { code: 'CONFIRMATION_MISMATCH', status: 400, error: 'Confirmation does not match' },
  tooManyAnnotatingTypes: {
    code: 'TOO_MANY_ANNOTATING_TYPES',
    status: 400,
    error: 'Too many types as annotations',
  },
  tooManyHiddenTypes: { code: 'TOO_MANY_HIDDEN_TYPES', status: 400, error: 'Too many hidden types' },
  tooManyViews: { code: 'TOO_MANY_VIEWS', status: 400, error: 'Too many saved views' },
  tooManyBoards: { code: 'TOO_MANY_BOARDS', status: 400, error: 'Too many boards' },
  tooManyShares: { code: 'TOO_MANY_SHARES', status: 400, error: 'Too many shares' },
  tooManyAnnotations: { code: 'TOO_MANY_ANNOTATIONS', status: 400, error: 'Too many annotations' },
  tooManyConsumers: { code: 'TOO_MANY_CONSUMERS', status: 400, error: 'Too many consumers' },
  tooManyWebhooks: { code: 'TOO_MANY_WEBHOOKS', status: 400, error: 'Too many webhooks' },
  tooManyAlertRules: { code: 'TOO_MANY_ALERT_RULES', status: 400, error: 'Too many alert rules' },
  tooManyFields: { code: 'TOO_MANY_FIELDS', status: 400, error: 'Too many fields' },
  tooManyTokens: { code: 'TOO_MANY_TOKENS', status: 400, error: 'Too many resource tokens' },
  tooManyInvitations: { code: 'TOO_MANY_INVITATIONS', status: 400, error: 'Too many invitations' },
  tooManyApps: { code: 'TOO_MANY_APPS', status: 400, error: 'Too many apps' },
  weakPassword: { code: 'WEAK_PASSWORD', status: 400, error: 'Password too weak' },
  sessionRequired: { code: 'SESSION_REQUIRED', status: 401, error: 'Sign in first' },
  signInExpired: { code: 'SIGN_IN_EXPIRED', status: 401, error: 'Sign in again' },
  signInFailed: { code: 'SIGN_IN_FAILED', status: 401, error: 'Email or password is wrong' },
  crossOrigin: { code: 'CROSS_ORIGIN', status: 403, error: 'Request from another site' },
  accountSuspended: { code: 'ACCOUNT_SUSPENDED', status: 403, error: 'Account suspended' },
  signUpClosed: { code: 'SIGN_UP_CLOSED', status: 403, error: 'Sign-up is closed' },
  wrongAccount: { code: 'WRONG_ACCOUNT', status: 403, error: 'For another account' },
  recoveryCodeNeeded: { code: 'RECOVERY_CODE_NEEDED', status: 403, error: 'A recovery code is needed' },
  wrongCode: { code: 'WRONG_CODE', status: 403, error: 'Code is wrong' },
  wrongPassword: { code: 'WRONG_PASSWORD', status: 403, error: 'Password is wrong' },
  passwordRequired: { code: 'PASSWORD_REQUIRED', status: 403, error: 'Password required' },
  invitationNotFound: { code: 'INVITATION_NOT_FOUND', status: 404, error: 'Invitation not found' },
  linkNotValid: { code: 'LINK_NOT_VALID', status: 404, error: 'Link is not valid' },
  fieldNotFound: { code: 'FIELD_NOT_FOUND', status: 404, error: 'Field not found' },
  viewNotFound: { code: 'VIEW_NOT_FOUND', status: 404, error: 'Saved view not found' },
  boardNotFound: { code: 'BOARD_NOT_FOUND', status: 404, error: 'Board not found' },
  shareNotFound: { code: 'SHARE_NOT_FOUND', status: 404, error: 'Share not found' },
  annotationNotFound: { code: 'ANNOTATION_NOT_FOUND', status: 404, error: 'Annotation not found' },
  webhookNotFound: { code: 'WEBHOOK_NOT_FOUND', status: 404, error: 'Webhook not found' },
  alertRuleNotFound: { code: 'ALERT_RULE_NOT_FOUND', status: 404, error: 'Alert rule not found' },
  schemaNotFound: { code: 'SCHEMA_NOT_FOUND', status: 404, error: 'Schema not found' },
  memberNotFound: { code: 'MEMBER_NOT_FOUND', status: 404, error: 'Member not found' },
  sessionNotFound: { code: 'SESSION_NOT_FOUND', status: 404, error: 'Session not found' },
  tokenNotFound: { code: 'TOKEN_NOT_FOUND', status: 404, error: 'Resource token not found' },
  alreadyMember: { code: 'ALREADY_MEMBER', status: 409, error: 'Already a member' },
  emailTaken: { code: 'EMAIL_TAKEN', status: 409, error: 'Email has an account' },
  consumerExists: { code: 'CONSUMER_EXISTS', status: 409, error: 'Consumer exists' },
  alertRuleExists: { code: 'ALERT_RULE_EXISTS', status: 409, error: 'Alert rule exists' },
  fieldExists: { code: 'FIELD_EXISTS', status: 409, error: 'Field exists' },
  eventTypeExists: { code: 'EVENT_TYPE_EXISTS', status: 409, error: 'Event type exists' },
  basisRequired: { code: 'BASIS_REQUIRED', status: 409, error: 'Say what the list is based on' },
  boardExists: { code: 'BOARD_EXISTS', status: 409, error: 'There is a board of this name' },
  secondFactorOff: { code: 'SECOND_FACTOR_OFF', status: 409, error: 'Second factor is off' },
  secondFactorOn: { code: 'SECOND_FACTOR_ON', status: 409, error: 'Second factor is on' },
  lastOwner: {
    code: 'LAST_OWNER',
    status: 409,
    error: 'The last owner cannot leave or be removed',
  },
  tooManyMails: { code: 'TOO_MANY_MAILS', status: 429, error: 'Too many mails', retryable: true },
  tooManyAttempts: { code: 'TOO_MANY_ATTEMPTS', status: 429, error: 'Too many attempts', retryable: true },
} as const satisfies Record<string, Refusal>;

export type Reason = keyof typeof REFUSALS;

export interface RejectionOptions {
  /** Seconds until a retry may succeed; only for retryable reasons, default 1. */
  readonly retryAfterSeconds?: number;
  /** Further headers of the answer, such as `Allow`. Values must not come from a request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The parameter or the field of the body that is at fault, where it is one. */
  readonly param?: string;
  /** Further fields of the answer's body. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** A body in place of the contract's, and its type where that is not JSON. */
  readonly body?: string | Buffer;
  readonly contentType?: string;
}

/** The page of the service that has a paragraph on each code of `/public` and `/v1`; `docs` of an error body leads there. */
export const ERRORS_PAGE = '/docs/errors';

const LAST_PUBLIC: Reason = 'outcomeUnknown';
const REASONS = Object.keys(REFUSALS) as readonly Reason[];

/** The codes of `/public` and `/v1`. */
export const DOCUMENTED: ReadonlySet<string> = new Set(
  REASONS.slice(0, REASONS.indexOf(LAST_PUBLIC) + 1).map((reason) => REFUSALS[reason].code),
);

/** A refusal as a value. Steps return it; only the exchange turns it into an answer. */
export class Rejection {
  readonly reason: Reason;
  readonly details: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Content type of a body that is not the contract's: see {@link written}. */
  readonly contentType: string | undefined;
  readonly #param: string | undefined;
  readonly #fields: Readonly<Record<string, unknown>> | undefined;
  /** Built once: many requests may be refused for the same reason. */
  #text: { readonly body: string | Buffer; readonly bytes: number } | null = null;

  /**
   * @param reason  a row of {@link REFUSALS}
   * @param details the longer explanation for the client, for example the name of a missing field; never a secret
   */
  constructor(reason: Reason, details: string, options: RejectionOptions = {}) {
    this.reason = reason;
    this.details = details;
    this.contentType = options.contentType;
    this.#param = options.param;
    this.#fields = options.fields;
    const { body } = options;
    if (body !== undefined) this.#text = { body, bytes: Buffer.byteLength(body) };
    this.headers = this.isRetryable
      ? { 'Retry-After': String(Math.max(1, Math.ceil(options.retryAfterSeconds ?? 1))), ...options.headers }
      : (options.headers ?? {});
  }

  get status(): number {
    return REFUSALS[this.reason].status;
  }

  /** A field of its body beside those of every refusal. */
  field(name: string): unknown {
    return this.#fields?.[name];
  }

  /** Whether the same request may succeed later. */
  get isRetryable(): boolean {
    return (REFUSALS[this.reason] as Refusal).retryable ?? false;
  }

  get code(): string {
    return REFUSALS[this.reason].code;
  }

  /**
   * This refusal with the body that another protocol defines for errors.
   * @param contentType of the body; JSON may be absent
   */
  written(body: string | Buffer, contentType?: string): Rejection {
    return new Rejection(this.reason, this.details, {
      headers: this.headers,
      ...(this.#param !== undefined && { param: this.#param }),
      ...(this.#fields && { fields: this.#fields }),
      ...(contentType !== undefined && { contentType }),
      body,
    });
  }

  /** The contract's error body as JSON text, or another protocol's. */
  get body(): string | Buffer {
    return this.#written().body;
  }

  /** The length of {@link body} in bytes. */
  get bytes(): number {
    return this.#written().bytes;
  }

  #written(): { readonly body: string | Buffer; readonly bytes: number } {
    if (this.#text === null) {
      const docs = DOCUMENTED.has(this.code) ? { docs: `${ERRORS_PAGE}#${this.code}` } : {};
      const body = JSON.stringify({ success: false, ...this.fields(), ...docs });
      this.#text = { body, bytes: Buffer.byteLength(body) };
    }
    return this.#text;
  }

  /** The fields of an error body, but for the link to the documentation. */
  fields(): { readonly error: string; readonly details: string; readonly code: string } {
    const { error, code } = REFUSALS[this.reason];
    const param = this.#param === undefined ? {} : { param: this.#param };
    return { error, details: this.details, code, ...param, ...this.#fields };
  }
}

/**
 * The refusal of what passes by itself: the same request succeeds later, as it is. That is 503 with `Retry-After` on every route, as
 * programs do not repeat what is refused with 400.
 * @param details says what is waited for, and to try again
 */
export function notYet(details: string, retryAfterSeconds = 1): Rejection {
  return new Rejection('unavailable', details, { retryAfterSeconds });
}

/** The refusal of a body for one of its fields. @param problem worded to follow the field's name */
export function invalidField(field: string, problem: string): Rejection {
  const message = ended(`The field ${JSON.stringify(field)} ${problem}`);
  return new Rejection('invalidBody', message, { param: field });
}

/** A sentence with its full stop, unless it ends in a question. */
export function ended(sentence: string): string {
  return sentence.endsWith('?') ? sentence : `${sentence}.`;
}

/**
 * A refusal that is thrown, so that the transaction that it leaves is rolled back. The routes answer its rejection, the command line prints its message.
 */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly rejection: Rejection;

  /** @param message one line for the command line; the rejection's details where none is given */
  constructor(rejection: Rejection, message = rejection.details) {
    super(message);
    this.rejection = rejection;
  }
}

/** @param message one line that says why, without a capital at its beginning and a stop at its end */
export function refused(reason: Reason, message: string, options: RejectionOptions = {}): Refused {
  return new Refused(
    new Rejection(reason, ended(`${message.charAt(0).toUpperCase()}${message.slice(1)}`), options),
    message,
  );
}

/** The refusal for an unknown app id. */
export function appNotFound(appId: string): Refused {
  return refused('appNotFound', `there is no app with the id ${JSON.stringify(appId)}`);
}

/** The refusal for an unknown id of a token. */
export function tokenNotFound(tokenId: string, what = 'resource token'): Refused {
  return refused('tokenNotFound', `there is no ${what} with the id ${JSON.stringify(tokenId)}`);
}

/** A failure that the operator can fix: the command line prints its one-line message, which says what to do. */
export class OperatorError extends Error {
  override readonly name = 'OperatorError';
  /** Whether a restart can succeed without a change, for example while the database is starting. */
  readonly isRetryable: boolean;

  constructor(message: string, options: ErrorOptions & { readonly isRetryable?: boolean } = {}) {
    super(message, options);
    this.isRetryable = options.isRetryable ?? false;
  }
}

/** Something that was typed is wrong: as an {@link OperatorError}, and a command that gets it ends with {@link WRONG_INPUT}. */
export class WrongInput extends OperatorError {}

/** The exit code of a command that cannot be run as it was typed, whatever the state of the installation. */
export const WRONG_INPUT = 2;

/** The exit code of a failure: {@link WRONG_INPUT} where a value cannot be right or names nothing that there is, else 1. */
export function exitCodeOf(error: unknown): number {
  const isOfInput =
    error instanceof WrongInput ||
    (error instanceof Refused &&
      (error.rejection.status === 404 ||
        ['INVALID_REQUEST', 'WEAK_PASSWORD'].includes(error.rejection.code)));
  return isOfInput ? WRONG_INPUT : 1;
}

/** A field of a request is wrong, so that a route can name it. */
export class WrongField extends WrongInput {
  readonly field: string;
  readonly problem: string;

  /** @param problem worded to follow the field's name, without a stop */
  constructor(field: string, problem: string, message = `the ${field} ${problem}`) {
    super(message);
    this.field = field;
    this.problem = problem;
  }
}

/** A text of any number of lines as one: what an operator reads, and what a log is searched for. */
export function oneLine(text: string): string {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .join(' ');
}
