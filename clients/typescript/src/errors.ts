import type { ErrorInfo, Execution, Problem, Why } from './documents.js'

/** Base of all errors of this package. `detail` is what is wrong, `hint` what to do about it, `message` both. */
export class ClientError extends Error {
  readonly detail: string
  readonly hint: string

  constructor(detail: string, hint: string = '') {
    super(hint === '' ? detail : `${detail} (${hint})`)
    this.name = new.target.name
    this.detail = detail
    this.hint = hint
  }
}

/** No gateway is named. */
export class ConfigurationError extends ClientError {}

/** What answers is not a gateway. */
export class UnexpectedAnswer extends ClientError {}

/** A refusal of the HTTP API. `code` is the kind of the problem, which is stable. */
export class ApiError extends ClientError {
  readonly code: string = ''
  readonly status: number = 0
  readonly problem: Problem | null

  constructor(message: string, hint: string = '', problem: Problem | null = null) {
    super(message, hint)
    this.problem = problem
  }
}

/** An execution that gave no result. `why` is what the gateway says about it; null where it could not be asked. */
export class ExecutionError extends ClientError {
  readonly execution: Execution
  readonly why: Why | null

  constructor(message: string, execution: Execution, why: Why | null, hint: string = '') {
    super(message, hint)
    this.execution = execution
    this.why = why
    for (const reason of why?.reasons ?? []) this.message += `\n  ${reason.sentence}`
  }

  /** The error that the execution ended with. */
  get error(): ErrorInfo | null {
    return this.execution.error
  }
}

/** An execution that has failed. */
export class ExecutionFailed extends ExecutionError {}

/** An execution that was cancelled. */
export class ExecutionCancelled extends ExecutionError {}

/** An execution that has not ended within the timeout. It goes on: ask for its result again, or cancel it. */
export class StillRunning extends ExecutionError {}

/** A timeout that ended while no gateway answered. */
export class OutOfTime extends ClientError {}

/** A result of more than a gateway answers with. `reference` says where it is kept. */
export class ResultTooLarge extends ExecutionError {
  readonly reference: unknown

  constructor(execution: Execution, reference: unknown) {
    const text = `the result of execution ${execution.execution_id} is too large for an answer`
    super(text, execution, null, 'let the playbook store it, and return where: see `reference`')
    this.reference = reference
  }
}
