/** Reasons to refuse a request that changes or lists apps, event types, tokens, members or accounts. */
export type AccountErrorCode =
  | 'INVALID_NAME'
  | 'INVALID_GRACE'
  | 'INVALID_EXPIRY'
  | 'NO_APPS'
  | 'APP_NOT_FOUND'
  | 'EVENT_TYPE_EXISTS'
  | 'EVENT_TYPE_NOT_FOUND'
  | 'FIELD_EXISTS'
  | 'FIELD_NOT_FOUND'
  | 'TOO_MANY_FIELDS'
  | 'TOO_MANY_VIEWS'
  | 'TOO_MANY_HIDDEN_TYPES'
  | 'TOO_MANY_ANNOTATIONS'
  | 'TOO_MANY_APPS'
  | 'TOO_MANY_TOKENS'
  | 'TOO_MANY_INVITATIONS'
  | 'TOO_MANY_EVENT_TYPES'
  | 'EVENT_TYPE_NOT_FOUND'
  | 'INVALID_SCHEMA'
  | 'SCHEMA_BUSY'
  | 'SCHEMA_NOT_FOUND'
  | 'TOKEN_NOT_FOUND'
  | 'INVALID_EMAIL'
  | 'INVALID_ROLE'
  | 'WEAK_PASSWORD'
  | 'EMAIL_TAKEN'
  | 'USER_NOT_FOUND'
  | 'EMAIL_NOT_PROVED'
  | 'ALREADY_MEMBER'
  | 'MEMBER_NOT_FOUND'
  | 'LAST_OWNER'
  | 'SECOND_FACTOR_OFF'
  | 'CONFIRMATION_MISMATCH';

/** A request that was refused without changing anything. The message is one line and says why. */
export class AccountError extends Error {
  override readonly name = 'AccountError';
  readonly code: AccountErrorCode;

  constructor(code: AccountErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** The error for an unknown app id. */
export function appNotFound(appId: string): AccountError {
  return new AccountError('APP_NOT_FOUND', `there is no app with the id ${JSON.stringify(appId)}`);
}
