import type { Client } from './client.js'
import type { Accepted, Event, Execution, LogLine, LogPage, Why } from './documents.js'
import {
  ClientError,
  ExecutionCancelled,
  ExecutionFailed,
  OutOfTime,
  ResultTooLarge,
  StillRunning,
  UnexpectedAnswer,
} from './errors.js'
import { OutcomeUnknown, TooBusy, Unreachable } from './problems.js'
import { type Asked, type Changing, FOLLOW_PATIENCE, LATE, type Route } from './transport.js'
import { ROUTES } from './verbs.js'

/** How long one request waits for the end, in seconds. */
const WAIT_S = 30
const ENDED = ['completed', 'failed', 'cancelled']
/** The most lines that a gateway gives at once. */
const LOG_PAGE = 1000
const LAST_EVENT = 'playbook.processed'
const EVENTS: Route = { method: 'GET', path: '/executions/{execution_id}/events/stream' }
const LOGS: Route = { method: 'GET', path: '/executions/{execution_id}/logs/stream', query: ['step', 'task', 'iteration', 'grep'] }

/** How long to wait: `timeout` is in seconds; without it for as long as it takes. */
export interface Waiting extends Asked {
  timeout?: number | undefined
}

/** Which lines: of a step, a task, an iteration such as `3` or `3.0`, or that contain a text, which is no pattern. */
export interface LogChoice {
  step?: string | null
  task?: string | null
  iteration?: string | null
  grep?: string | null
}

/** A reference to a file or table: the fields that a download needs. */
export interface FileReference {
  key: string
  size: number
  checksum: string
  seal: string
}

/** An execution by its id, which is asked for whenever something of it is needed. */
export class ExecutionHandle {
  readonly #client: Client

  constructor(
    client: Client,
    readonly id: string,
    readonly path: string = '',
  ) {
    this.#client = client
  }

  /** Get everything about it at a glance. */
  async get(given: Asked = {}): Promise<Execution> {
    return this.#client.getExecution({ ...given, execution_id: this.id })
  }

  /** Wait until it has ended, however it ends. */
  async wait(given: Waiting = {}): Promise<Execution> {
    const end = given.timeout === undefined ? Infinity : performance.now() + given.timeout * 1000
    for (;;) {
      const left = Math.max(Math.min((end - performance.now()) / 1000, WAIT_S), 0.001)
      const asked = { execution_id: this.id, wait: `${left.toFixed(3)}s`, abort: given.abort }
      let found: Execution
      try {
        found = (await this.#client.transport.ask(ROUTES.getExecution, asked, FOLLOW_PATIENCE, end)) as Execution
      } catch (error) {
        const isLost = error instanceof Unreachable || error instanceof OutcomeUnknown || error instanceof TooBusy
        if (!isLost || performance.now() < end) throw error
        throw new OutOfTime(`nothing is known of execution ${this.id} after ${given.timeout} s: ${error.message}`)
      }
      if (ENDED.includes(found.status)) return found
      if (performance.now() >= end) {
        const text = `execution ${this.id} of ${found.path} is ${found.status} after ${given.timeout} s`
        throw new StillRunning(text, found, await this.#why(), 'it goes on: ask for its result again, or cancel it')
      }
    }
  }

  /** Wait for its end, and get its result, whole. What has failed or was cancelled throws, with `why`. */
  async result(given: Waiting = {}): Promise<unknown> {
    const found = await this.wait(given)
    const name = `execution ${this.id} of ${found.path}`
    if (found.status === 'cancelled') throw new ExecutionCancelled(`${name} was cancelled`, found, await this.#why())
    if (found.status !== 'completed') {
      const where = found.failed_step ? ` at step ${found.failed_step}` : ''
      const what = found.error ? `: ${found.error.message}` : ''
      throw new ExecutionFailed(`${name} has failed${where}${what}`, found, await this.#why())
    }
    if (referenceOf(found.result) === undefined) return found.result
    const { result } = await this.#client.getResult({ execution_id: this.id, ...given })
    const reference = referenceOf(result)
    if (reference !== undefined) throw new ResultTooLarge(found, reference)
    return result
  }

  /** Explain why it is where it is, and what would move it. */
  async why(given: Asked = {}): Promise<Why> {
    return this.#client.explainExecution({ ...given, execution_id: this.id })
  }

  async #why(): Promise<Why | null> {
    try {
      const asked = { execution_id: this.id }
      return (await this.#client.transport.ask(ROUTES.explainExecution, asked, LATE, performance.now() + LATE)) as Why
    } catch (error) {
      if (error instanceof ClientError) return null
      throw error
    }
  }

  /** Follow its events after a position, each once and in order: history first, then as they happen, to its end. */
  async *events(given: Asked & { after?: number } = {}): AsyncGenerator<Event> {
    const hasMore = async (last: string | null): Promise<boolean> => {
      const asked = { execution_id: this.id }
      const found = (await this.#client.transport.ask(ROUTES.getExecution, asked, FOLLOW_PATIENCE)) as Execution
      return !ENDED.includes(found.status) || found.position > Number(last ?? 0)
    }
    const asked = { execution_id: this.id, abort: given.abort }
    for await (const frame of this.#client.transport.follow(EVENTS, asked, String(given.after ?? 0), hasMore)) {
      if (frame.data === '') continue
      const event = JSON.parse(frame.data) as Event
      yield event
      if (event.name === LAST_EVENT) return
    }
  }

  /**
   * Download a file or table that it holds: `download({ reference: result.file, write: (piece) => file.write(piece) })`.
   *
   * @param given.reference The reference, from a result, an argument or `ctx`.
   * @param given.write Called with each piece of the content, in order. The file is complete once this returns.
   */
  async download(
    given: Asked & { reference: FileReference; write: (piece: Uint8Array) => unknown },
  ): Promise<void> {
    const { reference, write, abort } = given
    const { key, size, checksum, seal } = reference
    let received = 0
    for await (const piece of this.#client.getFile({ execution_id: this.id, key, size, checksum, seal, abort })) {
      received += piece.length
      await write(piece)
    }
    if (received !== size) throw new UnexpectedAnswer(`the file has ${size} bytes, and ${received} have come`)
  }

  /** Read what its tasks have written; with `follow`, go on until it has ended. `after` is the id of a line. */
  async *logs(
    given: Asked & LogChoice & { follow?: boolean; after?: string } = {},
  ): AsyncGenerator<LogLine> {
    const { follow = false, after = null, ...chosen } = given
    const read = (from: string | null): Promise<LogPage> =>
      this.#client.listLogs({ ...chosen, execution_id: this.id, after: from, limit: LOG_PAGE })
    if (follow) {
      const asked = { ...chosen, execution_id: this.id }
      const hasMore = async (last: string | null): Promise<boolean> => {
        const rest = { ...asked, after: last, limit: 1 }
        const page = (await this.#client.transport.ask(ROUTES.listLogs, rest, FOLLOW_PATIENCE)) as LogPage
        return page.state !== 'ended'
      }
      for await (const frame of this.#client.transport.follow(LOGS, asked, after, hasMore)) {
        if (frame.data !== '') yield JSON.parse(frame.data) as LogLine
      }
      return
    }
    let page = await read(after)
    yield* page.items
    while (page.state === 'more') {
      page = await read(page.next)
      yield* page.items
    }
  }

  /** Change its `ctx`: each key is replaced whole, or with `merge` merged deeply, where null deletes a key. */
  async patch(
    given: Changing & { changes: Readonly<Record<string, unknown>>; merge?: boolean; version?: number; reason?: string },
  ): Promise<Accepted> {
    const { merge = false, version, ...rest } = given
    const media = merge ? 'application/merge-patch+json' : 'application/json'
    return this.#client.patchCtx({
      ...rest,
      execution_id: this.id,
      media,
      if_match: version === undefined ? null : `"${version}"`,
    })
  }

  /** Send a signal to the waits for it, which give the payload as their result. */
  async signal(given: Changing & { name: string; payload?: unknown; reason?: string }): Promise<Accepted> {
    return this.#client.sendSignal({ ...given, execution_id: this.id })
  }

  /** Cancel it, and the executions it has called. */
  async cancel(given: Changing & { reason?: string } = {}): Promise<Accepted> {
    return this.#client.cancelExecution({ ...given, execution_id: this.id })
  }

  /** Run it again, once it has ended, as a new execution from a step; without one from the step run that failed. */
  async rerun(
    given: Changing & {
      step?: string
      ctx?: Readonly<Record<string, unknown>>
      args?: Readonly<Record<string, unknown>>
      reason?: string
    } = {},
  ): Promise<ExecutionHandle> {
    const { step, ...rest } = given
    const made =
      step === undefined
        ? await this.#client.retryExecution({ ...rest, execution_id: this.id })
        : await this.#client.rerunExecution({ ...rest, step, execution_id: this.id })
    return this.#client.execution(made.execution_id, made.path)
  }
}

function referenceOf(result: unknown): unknown {
  if (typeof result !== 'object' || result === null || Object.keys(result).join() !== '$reference') return undefined
  return (result as { $reference: unknown }).$reference
}
