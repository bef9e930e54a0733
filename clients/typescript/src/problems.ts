// Refusals of the HTTP API: an exception for each kind of problem. Made by scripts/typescript_code.py: do not edit.

import { ApiError } from './errors.js'

/** Its present state does not allow this. It has ended, has not ended yet, or is registered with another text. The detail says which. */
export class Conflict extends ApiError {
  override readonly code: string = 'conflict'
  override readonly status: number = 409
}

/** It has another version now. It was changed after you read it. Read it again, then decide. */
export class VersionMismatch extends Conflict {
  override readonly code: string = 'version-mismatch'
  override readonly status: number = 412
}

/** Too many requests. Nothing was done. Try again after the seconds in Retry-After. */
export class TooBusy extends ApiError {
  override readonly code: string = 'too-busy'
  override readonly status: number = 429
}

/** Authentication required. Send `Authorization: Bearer` with a valid token. */
export class Unauthenticated extends ApiError {
  override readonly code: string = 'unauthenticated'
  override readonly status: number = 401
}

/** Not allowed. The token is valid, but its role or its paths do not allow this. */
export class Forbidden extends ApiError {
  override readonly code: string = 'forbidden'
  override readonly status: number = 403
}

/** A store is not prepared. The detail names the command that prepares it. */
export class NotReady extends ApiError {
  override readonly code: string = 'not-ready'
  override readonly status: number = 503
}

/** A store does not answer. NATS, Postgres or every server is down. Try again; with an Idempotency-Key nothing is done twice. */
export class Unreachable extends ApiError {
  override readonly code: string = 'unreachable'
  override readonly status: number = 503
}

/** The outcome is unknown. A store did not answer in time. Ask again, with the same Idempotency-Key if you sent one. */
export class OutcomeUnknown extends ApiError {
  override readonly code: string = 'outcome-unknown'
  override readonly status: number = 503
}

/** A query took too long. Postgres did not find the answer within NOETL_GATEWAY_MAX_QUERY_S. Ask for less: the hint says how. */
export class QueryTooLong extends ApiError {
  override readonly code: string = 'query-too-long'
  override readonly status: number = 504
}

/** The payload is not accepted. It exceeds a limit, is nested too deeply, or holds what JSON and Postgres cannot represent. */
export class PayloadRefused extends ApiError {
  override readonly code: string = 'payload-refused'
  override readonly status: number = 422
}

/** Invalid value. The detail says what is wrong with it. */
export class UsageError extends ApiError {
  override readonly code: string = 'invalid'
  override readonly status: number = 422
}

/** The playbook has errors. `diagnostics` has each with its line and column. Nothing was stored or started. */
export class PlaybookRefused extends UsageError {
  override readonly code: string = 'playbook-refused'
  override readonly status: number = 422
}

/** Not found. What the address or the body names does not exist, or this token may not see it. */
export class NotFound extends UsageError {
  override readonly code: string = 'not-found'
  override readonly status: number = 404
}

/** Malformed request. `errors` has each fault: at a JSON pointer into the body, or with a parameter. */
export class InvalidRequest extends UsageError {
  override readonly code: string = 'invalid-request'
  override readonly status: number = 400
}

/** The body is too large. The detail names the setting that limits it. */
export class TooLarge extends PayloadRefused {
  override readonly code: string = 'too-large'
  override readonly status: number = 413
}

/** The gateway holds as much as it may. Nothing was done. Try again after the seconds in Retry-After, or ask another gateway. */
export class Overloaded extends TooBusy {
  override readonly code: string = 'overloaded'
  override readonly status: number = 503
}

/** Unsupported media type. Send one of the types that the detail names, in Content-Type. */
export class UnsupportedMediaType extends UsageError {
  override readonly code: string = 'unsupported-media-type'
  override readonly status: number = 415
}

/** Method not allowed. Allow lists the methods of this address. */
export class MethodNotAllowed extends UsageError {
  override readonly code: string = 'method-not-allowed'
  override readonly status: number = 405
}

/** The Idempotency-Key was used for another request. Use a new key for each request, and keep it for retries of that request. */
export class KeyReused extends UsageError {
  override readonly code: string = 'key-reused'
  override readonly status: number = 422
}

/** Internal error. The log of the gateway has the details. Please report it. */
export class Internal extends ApiError {
  override readonly code: string = 'internal'
  override readonly status: number = 500
}

export const PROBLEMS: Readonly<Record<string, typeof ApiError>> = {
  'playbook-refused': PlaybookRefused,
  'not-found': NotFound,
  'version-mismatch': VersionMismatch,
  'conflict': Conflict,
  'too-busy': TooBusy,
  'unauthenticated': Unauthenticated,
  'forbidden': Forbidden,
  'not-ready': NotReady,
  'unreachable': Unreachable,
  'outcome-unknown': OutcomeUnknown,
  'query-too-long': QueryTooLong,
  'payload-refused': PayloadRefused,
  'invalid': UsageError,
  'invalid-request': InvalidRequest,
  'too-large': TooLarge,
  'overloaded': Overloaded,
  'unsupported-media-type': UnsupportedMediaType,
  'method-not-allowed': MethodNotAllowed,
  'key-reused': KeyReused,
  'internal': Internal,
}
