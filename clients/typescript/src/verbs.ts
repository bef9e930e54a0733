// The verbs of the HTTP API, by their operation ids. Made by scripts/typescript_code.py: do not edit.

import type {
  Accepted,
  ApiTokens,
  AuditCheck,
  AuditPage,
  Backfilled,
  Bulk,
  Bundle,
  CallPage,
  Caller,
  Checked,
  Checks,
  Credential,
  Credentials,
  Ctx,
  DeadLetter,
  DeadLetterPage,
  DeadLetterWithBody,
  EventPage,
  Execution,
  ExecutionDiff,
  ExecutionGraph,
  ExecutionGroups,
  ExecutionHistogram,
  ExecutionPage,
  ExecutionState,
  Grants,
  Graph,
  IterationPage,
  IterationSummaries,
  KeyChangePage,
  LimitPage,
  LimitWithSlots,
  LineagePage,
  LogPage,
  LoopStrip,
  NewApiToken,
  Occurrence,
  OccurrencePage,
  Partitions,
  PlaybookDiff,
  PlaybookGrants,
  PlaybookPage,
  PlaybookStatistics,
  PlaybookVersions,
  PlaybookWithSource,
  Pools,
  Registered,
  RegisteredSchedule,
  Result,
  Rotated,
  SchedulePage,
  Session,
  SignInCode,
  StepRunResult,
  StepRuns,
  Storage,
  StoredBundle,
  StoredTable,
  Timeline,
  TriggerEvent,
  TriggerEventPage,
  TriggerPage,
  TriggerState,
  UpcomingOccurrences,
  Why,
  Workers,
} from './documents.js'
import type { Asked, Changing, Route } from './transport.js'

/** Each takes its arguments as one object. What is null or undefined is not sent. */
export interface Verbs {
  /** Start an execution. The request is committed when this answers. A text of your own, `playbook`, takes an author. */
  startExecution(given?: Changing & { path?: string | null; version?: string | null; digest?: string | null; playbook?: string | null; workload?: Readonly<Record<string, unknown>> | null; ctx?: Readonly<Record<string, unknown>> | null; labels?: Readonly<Record<string, string | number | boolean | null>> | null; key?: string | null; unique?: boolean | null; priority?: number | null; wait?: string | null; reason?: string | null; correlation_id?: string | null; traceparent?: string | null }): Promise<Execution>

  /** List executions, newest first. */
  listExecutions(given?: Asked & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; limit?: number | null; cursor?: string | null }): Promise<ExecutionPage>

  /** Count executions by status over the time of their start. Of the last 24 hours, unless `started_from` and `started_before` say otherwise. */
  countExecutions(given?: Asked & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; bars?: number | null }): Promise<ExecutionHistogram>

  /** Count executions by status and by path or a label. */
  groupExecutions(given: Asked & { by: string; status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null }): Promise<ExecutionGroups>

  /** Get an execution, as it is or as it is after `wait`. */
  getExecution(given: Asked & { execution_id: string; wait?: string | null }): Promise<Execution>

  /** Delete an ended execution. */
  deleteExecution(given: Asked & { execution_id: string }): Promise<void>

  /** Get the result of an ended execution, whole. A result kept by reference is loaded unless it is very large. */
  getResult(given: Asked & { execution_id: string }): Promise<Result>

  /** Download a file or table that an execution holds. The parameters are fields of its reference. A response that is shorter than its `Content-Length` is not whole. */
  getFile(given: Asked & { execution_id: string; key: string; size: number; checksum: string; seal: string; name?: string | null }): AsyncGenerator<Uint8Array>

  /** List its step runs, in the order they began. Without `limit` all of them, else a page, by `order`. */
  listSteps(given: Asked & { execution_id: string; limit?: number | null; first?: number | null; step?: string | null; step_run_id?: string | null; order?: "began" | "duration" | null }): Promise<StepRuns>

  /** Look at a table that an execution holds: its columns, how often which values are in them, its first rows. */
  getTable(given: Asked & { execution_id: string; key: string; size: number; checksum: string; seal?: string | null; rows?: number | null; first?: number | null; limit?: number | null }): Promise<StoredTable>

  /** Get the result of a step run, whole, from wherever it is kept. */
  getStepResult(given: Asked & { execution_id: string; step_run_id: string }): Promise<StepRunResult>

  /** List the iterations of a loop step's run. */
  listIterations(given: Asked & { execution_id: string; step_run_id: string; limit?: number | null; cursor?: string | null }): Promise<IterationPage>

  /** Explain why it is where it is, and what would move it. */
  explainExecution(given: Asked & { execution_id: string }): Promise<Why>

  /** List its journal, by position. Events are searched as they are shown, at most 10,000 for a page. A page ends after 1 MiB. */
  listEvents(given: Asked & { execution_id: string; after?: number | null; before?: number | null; name?: readonly string[] | null; step?: string | null; task?: string | null; iteration?: string | null; text?: string | null; field?: readonly ("event_id" | "execution_id" | "position" | "ts" | "source" | "name" | "entity" | "entity_id" | "status" | "step_run_id" | "report_id" | "cause_id" | "trace_id" | "actor" | "task" | "attempt" | "iteration" | "tokens_consumed" | "tokens_produced" | "guards" | "digest" | "data" | "step")[] | null; limit?: number | null }): Promise<EventPage>

  /** Get its state at a position of its journal: tokens, `ctx`, results. */
  getState(given: Asked & { execution_id: string; position?: number | null }): Promise<ExecutionState>

  /** Get the graph of its playbook, with what happened at each step and arc. */
  getExecutionGraph(given: Asked & { execution_id: string; so_far?: boolean | null }): Promise<ExecutionGraph>

  /** Compare it (A) with another (B): where they part first, and what differs. */
  diffExecutions(given: Asked & { execution_id: string; other: string; rows?: "different" | "all" | null; limit?: number | null; cursor?: string | null }): Promise<ExecutionDiff>

  /** Get what went on when: step runs, iterations, attempts, waits. */
  getTimeline(given: Asked & { execution_id: string; since?: Date | string | null; until?: Date | string | null; width?: number | null; step?: string | null; first?: number | null; limit?: number | null; folded?: boolean | null; toggled?: readonly string[] | null; so_far?: boolean | null }): Promise<Timeline>

  /** Get the iterations of a loop by status, in buckets. */
  getStrip(given: Asked & { execution_id: string; step_run_id: string; first?: number | null; end?: number | null; within?: string | null; buckets?: number | null }): Promise<LoopStrip>

  /** List the iterations of a loop in a range, without their results. */
  listIterationSummaries(given: Asked & { execution_id: string; step_run_id: string; first?: number | null; end?: number | null; within?: string | null; status?: "waiting" | "running" | "done" | "failed" | "cancelled" | "reused" | "skipped" | null; limit?: number | null }): Promise<IterationSummaries>

  /** List the changes of its `ctx` by key, with the values before and after. */
  listCtxChanges(given: Asked & { execution_id: string; limit?: number | null; cursor?: string | null; key?: string | null }): Promise<KeyChangePage>

  /** List which task has read and written which files and tables. */
  listLineage(given: Asked & { execution_id: string; limit?: number | null; cursor?: string | null }): Promise<LineagePage>

  /** List the executions that it has called, with their statuses. */
  listCalls(given: Asked & { execution_id: string; limit?: number | null; cursor?: string | null }): Promise<CallPage>

  /** Inject a token at a step. */
  injectToken(given: Changing & { execution_id: string; step: string; args?: Readonly<Record<string, unknown>> | null; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Send a signal to the waits for it. */
  sendSignal(given: Changing & { execution_id: string; name: string; payload?: unknown | null; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Cancel it, and the executions it has called. */
  cancelExecution(given: Changing & { execution_id: string; now?: boolean | null; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Pause it: no step starts until it is resumed. */
  pauseExecution(given: Changing & { execution_id: string; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Resume it after a pause or a quarantine. */
  resumeExecution(given: Changing & { execution_id: string; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Begin the next attempts of its tasks that wait for them. */
  retryNow(given: Changing & { execution_id: string; reason?: string | null; correlation_id?: string | null }): Promise<Accepted>

  /** Run an ended execution again from one of its steps. */
  rerunExecution(given: Changing & { execution_id: string; step?: string | null; step_run_id?: string | null; ctx?: Readonly<Record<string, unknown>> | null; args?: Readonly<Record<string, unknown>> | null; priority?: number | null; wait?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Execution>

  /** Run an ended execution again from the step run that failed. */
  retryExecution(given: Changing & { execution_id: string; ctx?: Readonly<Record<string, unknown>> | null; args?: Readonly<Record<string, unknown>> | null; priority?: number | null; wait?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Execution>

  /** Undo what is left to undo of an execution that failed or was cancelled, in a new one. */
  compensateExecution(given: Changing & { execution_id: string; wait?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Execution>

  /** Cancel executions, and those they have called. */
  cancelExecutions(given?: Changing & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Pause executions. */
  pauseExecutions(given?: Changing & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Resume executions after a pause or a quarantine. */
  resumeExecutions(given?: Changing & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Run failed executions again, each from the step run that failed. */
  retryExecutions(given?: Changing & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; ctx?: Readonly<Record<string, unknown>> | null; args?: Readonly<Record<string, unknown>> | null; priority?: number | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Run ended executions again from one of their steps. */
  rerunExecutions(given: Changing & { step: string; status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; ctx?: Readonly<Record<string, unknown>> | null; args?: Readonly<Record<string, unknown>> | null; priority?: number | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Delete ended executions. */
  deleteExecutions(given?: Changing & { status?: readonly ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[] | null; path?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; started_from?: Date | string | null; started_before?: Date | string | null; error?: string | null; key?: string | null; input?: Readonly<Record<string, unknown>> | readonly string[] | null; failed_step?: string | null; worker?: string | null; longer_than?: string | null; due?: string | null; ids?: readonly string[] | null; dry_run?: boolean | null; limit?: number | null; cursor?: string | null; reason?: string | null; correlation_id?: string | null }): Promise<Bulk>

  /** Get its `ctx`, and who changed what when. */
  getCtx(given: Asked & { execution_id: string }): Promise<Ctx>

  /** Change its `ctx`. */
  patchCtx(given: Changing & { execution_id: string; changes: Readonly<Record<string, unknown>>; reason?: string | null; correlation_id?: string | null; if_match?: string | null; media?: "application/json" | "application/merge-patch+json" }): Promise<Accepted>

  /** Check a text; nothing is stored. */
  checkPlaybook(given: Asked & { source: string; name?: string | null; graph?: boolean | null }): Promise<Checked>

  /** Register a playbook. */
  registerPlaybook(given: Changing & { source: string; name?: string | null }): Promise<Registered>

  /** List playbooks by path, the latest version of each. */
  listPlaybooks(given?: Asked & { limit?: number | null; cursor?: string | null; prefix?: string | null; label?: Readonly<Record<string, unknown>> | readonly string[] | null; words?: string | null; kind?: readonly ("Playbook" | "Schedule" | "Trigger" | "Schema")[] | null; last?: boolean | null }): Promise<PlaybookPage>

  /** Get a playbook with its text. */
  getPlaybook(given: Asked & { path: string; version?: string | null }): Promise<PlaybookWithSource>

  /** Delete a version, or without one all of them, from the catalog. Executions keep their text. */
  deletePlaybook(given: Asked & { path: string; version?: string | null }): Promise<void>

  /** Get its text alone. */
  getSource(given: Asked & { path: string; version?: string | null }): Promise<string>

  /** Store the Python packages of a project. `path` is that of the project. Stored again, the same bytes change nothing. */
  putBundle(given: Changing & { path: string; source: string }): Promise<Bundle>

  /** Get the Python packages of a project. */
  getBundle(given: Asked & { path: string; digest: string }): Promise<StoredBundle>

  /** Get the plan it compiles to. */
  getPlan(given: Asked & { path: string; version?: string | null }): Promise<Record<string, unknown>>

  /** Get its steps and arcs. */
  getGraph(given: Asked & { path: string; version?: string | null; digest?: string | null }): Promise<Graph>

  /** List every version of a playbook. */
  listVersions(given: Asked & { path: string }): Promise<PlaybookVersions>

  /** Compare two versions: text, steps and arcs. */
  diffVersions(given: Asked & { path: string; before?: string | null; after?: string | null }): Promise<PlaybookDiff>

  /** Compare a text with a version; nothing is stored. */
  diffText(given: Asked & { path: string; source: string; name?: string | null; before?: string | null }): Promise<PlaybookDiff>

  /** Get how its executions ended and how long they and its steps took. Of at most 10,000 executions, the newest. For steps, journals of at most 200 of those that have ended are read, the newest, up to 20,000 events. */
  getStatistics(given: Asked & { path: string; since?: Date | string | null }): Promise<PlaybookStatistics>

  /** Get the JSON Schema of a kind of documents; that of playbooks has the tool kinds there are. */
  getSchema(given?: Asked & { kind?: "Playbook" | "Schedule" | "Trigger" | null }): Promise<Record<string, unknown>>

  /** List schedules by path, each with its next time. */
  listSchedules(given?: Asked & { limit?: number | null; cursor?: string | null; prefix?: string | null }): Promise<SchedulePage>

  /** Get a schedule: when it starts next, what runs and waits, whether it is paused and why. */
  getSchedule(given: Asked & { path: string }): Promise<RegisteredSchedule>

  /** Delete it, its history, and its document in all versions. What it has started goes on. */
  deleteSchedule(given: Asked & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<void>

  /** List when it is due next, paused or not. */
  listUpcoming(given: Asked & { path: string; count?: number | null; after?: Date | string | null }): Promise<UpcomingOccurrences>

  /** List what became of its occurrences: started, or skipped with the reason. */
  listOccurrences(given: Asked & { path: string; limit?: number | null; cursor?: string | null; status?: "waiting" | "started" | "skipped" | "completed" | "failed" | "cancelled" | null }): Promise<OccurrencePage>

  /** Pause it: it starts nothing until it is resumed. */
  pauseSchedule(given: Changing & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<RegisteredSchedule>

  /** Resume it from now on. */
  resumeSchedule(given: Changing & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<RegisteredSchedule>

  /** Let it be due now, once, also if it is paused. */
  triggerSchedule(given: Changing & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<Occurrence>

  /** Let the occurrences of a range in the past be due now, in order. */
  backfillSchedule(given: Changing & { path: string; from: Date | string; before: Date | string; overlap?: "skip" | "queue_one" | "queue_all" | "cancel" | "terminate" | "allow" | null; reason?: string | null; correlation_id?: string | null }): Promise<Backfilled>

  /** List credentials by name, without their values. */
  listCredentials(given?: Asked): Promise<Credentials>

  /** Encrypt what is under an older key with the current one. */
  rotateCredentials(given?: Changing & { reason?: string | null; correlation_id?: string | null }): Promise<Rotated>

  /** Get a credential without its value. */
  getCredential(given: Asked & { name: string }): Promise<Credential>

  /** Store a credential, or its next version. */
  putCredential(given: Asked & { name: string; value: string | Record<string, unknown>; kind?: string | null; description?: string | null; tags?: readonly string[] | null; reason?: string | null; correlation_id?: string | null }): Promise<Credential>

  /** Delete a credential. */
  deleteCredential(given: Asked & { name: string; reason?: string | null; correlation_id?: string | null }): Promise<void>

  /** Get the grants in force, or a revision of those that were registered. */
  getGrants(given?: Asked & { revision?: number | null }): Promise<Grants>

  /** Register grants as the next revision. `revision` is one more than that of the grants you changed, 1 if there were none. Every server and gateway has them within a few seconds. */
  putGrants(given: Asked & { revision: number; source: string; reason?: string | null; correlation_id?: string | null }): Promise<Grants>

  /** List what the playbook at a path may use, whether it is registered or not. */
  getPlaybookGrants(given: Asked & { path: string }): Promise<PlaybookGrants>

  /** List the workers that are alive. */
  listWorkers(given?: Asked): Promise<Workers>

  /** List pools, with what is queued and running in each. */
  listPools(given?: Asked): Promise<Pools>

  /** List partitions: which server folds them, and how far behind it is. */
  listPartitions(given?: Asked): Promise<Partitions>

  /** List the keys of limits that are held or waited for. */
  listLimits(given?: Asked & { limit?: number | null; cursor?: string | null }): Promise<LimitPage>

  /** Get the limit of a key, with who holds it and who waits. */
  getLimit(given: Asked & { key: string; namespace?: string | null }): Promise<LimitWithSlots>

  /** List messages and commands that were given up, newest first, without bodies. */
  listDeadLetters(given?: Asked & { limit?: number | null; cursor?: string | null }): Promise<DeadLetterPage>

  /** Get a dead letter with its body. */
  getDeadLetter(given: Asked & { letter_id: string }): Promise<DeadLetterWithBody>

  /** Take it off the list for good. */
  discardDeadLetter(given: Asked & { letter_id: string; reason?: string | null; correlation_id?: string | null }): Promise<void>

  /** Send it again where it came from, and take it off the list. */
  requeueDeadLetter(given: Changing & { letter_id: string; reason?: string | null; correlation_id?: string | null }): Promise<DeadLetter>

  /** Look for what is wrong with the system, check by check, with what mends it. */
  examine(given?: Asked): Promise<Checks>

  /** List what streams and tables take on disk. */
  listStorage(given?: Asked): Promise<Storage>

  /** List what its tasks have written. Lines are searched as they are shown. A page may be empty and have a `next` page. */
  listLogs(given: Asked & { execution_id: string; step?: string | null; task?: string | null; iteration?: string | null; since?: Date | string | null; grep?: string | null; after?: string | null; limit?: number | null }): Promise<LogPage>

  /** Create an API token. */
  createToken(given: Changing & { name: string; role: "viewer" | "operator" | "author" | "admin"; paths?: readonly string[] | null; expires?: Date | string | null }): Promise<NewApiToken>

  /** List tokens in the order they were created, without their secrets. */
  listTokens(given?: Asked): Promise<ApiTokens>

  /** Revoke a token, within two seconds on every gateway. */
  revokeToken(given: Asked & { token_id: string; reason?: string | null; correlation_id?: string | null }): Promise<void>

  /** List calls that changed something, and calls that were refused, newest first. */
  listAudit(given?: Asked & { limit?: number | null; cursor?: string | null; principal?: string | null; operation?: string | null; target?: string | null; refused?: boolean | null }): Promise<AuditPage>

  /** Check whether entries of the audit were changed, removed or inserted. */
  checkAudit(given?: Asked & { cursor?: string | null }): Promise<AuditCheck>

  /** List triggers by path. */
  listTriggers(given?: Asked & { limit?: number | null; cursor?: string | null; prefix?: string | null }): Promise<TriggerPage>

  /** Get a trigger as it is now. */
  getTrigger(given: Asked & { path: string }): Promise<TriggerState>

  /** Forget a trigger and its events. What it has started goes on. */
  deleteTrigger(given: Asked & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<void>

  /** Ignore events until the trigger is resumed. */
  pauseTrigger(given: Changing & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<TriggerState>

  /** Start executions on events again. */
  resumeTrigger(given: Changing & { path: string; reason?: string | null; correlation_id?: string | null }): Promise<TriggerState>

  /** List events and what became of them, newest first. */
  listTriggerEvents(given: Asked & { path: string; limit?: number | null; cursor?: string | null; status?: "started" | "waiting" | "repeated" | "ignored" | null }): Promise<TriggerEventPage>

  /** Get an event in full. */
  getTriggerEvent(given: Asked & { path: string; number: number }): Promise<TriggerEvent>

  /** Send an event again, as a new one. */
  resendTriggerEvent(given: Changing & { path: string; number: number; reason?: string | null; correlation_id?: string | null }): Promise<TriggerEvent>

  /** Create a code that signs a browser in with the rights of this token. */
  createSignInCode(given?: Changing): Promise<SignInCode>

  /** Exchange a code for a browser session. The session is a cookie that scripts cannot read. It ends after 12 hours, with its token, or with `signOut`. */
  signIn(given: Asked & { code: string }): Promise<Session>

  /** End the browser session. With a token this does nothing: revoke it instead. */
  signOut(given?: Asked): Promise<void>

  /** Who the caller is, and what it may do. */
  me(given?: Asked): Promise<Caller>
}

/** Arguments that are headers. */
export const HEADERS = {"reason": "X-Reason", "correlation_id": "X-Correlation-Id", "if_match": "If-Match", "traceparent": "traceparent"} as const

/** Where verbs are in the HTTP API, and which of their arguments are where. */
export const ROUTES: { readonly [Name in keyof Verbs]: Route } = {
  startExecution: { method: "POST", path: "/executions", query: ["wait"], body: ["path", "version", "digest", "playbook", "workload", "ctx", "labels", "key", "unique", "priority"], takes_key: true },
  listExecutions: { method: "GET", path: "/executions", query: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "limit", "cursor"], pairs: ["label", "input"], next: "cursor" },
  countExecutions: { method: "GET", path: "/executions/histogram", query: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "bars"], pairs: ["label", "input"] },
  groupExecutions: { method: "GET", path: "/executions/groups", query: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "by"], pairs: ["label", "input"] },
  getExecution: { method: "GET", path: "/executions/{execution_id}", query: ["wait"] },
  deleteExecution: { method: "DELETE", path: "/executions/{execution_id}" },
  getResult: { method: "GET", path: "/executions/{execution_id}/result" },
  getFile: { method: "GET", path: "/executions/{execution_id}/file", query: ["key", "size", "checksum", "seal", "name"], bytes: true },
  listSteps: { method: "GET", path: "/executions/{execution_id}/steps", query: ["limit", "first", "step", "step_run_id", "order"], next: "first" },
  getTable: { method: "GET", path: "/executions/{execution_id}/table", query: ["key", "size", "checksum", "seal", "rows", "first", "limit"] },
  getStepResult: { method: "GET", path: "/executions/{execution_id}/steps/{step_run_id}/result" },
  listIterations: { method: "GET", path: "/executions/{execution_id}/steps/{step_run_id}/iterations", query: ["limit", "cursor"], next: "cursor" },
  explainExecution: { method: "GET", path: "/executions/{execution_id}/why" },
  listEvents: { method: "GET", path: "/executions/{execution_id}/events", query: ["after", "before", "name", "step", "task", "iteration", "text", "field", "limit"], next: "after" },
  getState: { method: "GET", path: "/executions/{execution_id}/state", query: ["position"] },
  getExecutionGraph: { method: "GET", path: "/executions/{execution_id}/graph", query: ["so_far"] },
  diffExecutions: { method: "GET", path: "/executions/{execution_id}/diff/{other}", query: ["rows", "limit", "cursor"] },
  getTimeline: { method: "GET", path: "/executions/{execution_id}/timeline", query: ["since", "until", "width", "step", "first", "limit", "folded", "toggled", "so_far"] },
  getStrip: { method: "GET", path: "/executions/{execution_id}/steps/{step_run_id}/strip", query: ["first", "end", "within", "buckets"] },
  listIterationSummaries: { method: "GET", path: "/executions/{execution_id}/steps/{step_run_id}/iterations/summaries", query: ["first", "end", "within", "status", "limit"], next: "first" },
  listCtxChanges: { method: "GET", path: "/executions/{execution_id}/ctx/changes", query: ["limit", "cursor", "key"], next: "cursor" },
  listLineage: { method: "GET", path: "/executions/{execution_id}/lineage", query: ["limit", "cursor"], next: "cursor" },
  listCalls: { method: "GET", path: "/executions/{execution_id}/calls", query: ["limit", "cursor"], next: "cursor" },
  injectToken: { method: "POST", path: "/executions/{execution_id}/tokens", body: ["step", "args"], takes_key: true },
  sendSignal: { method: "POST", path: "/executions/{execution_id}/signals/{name}", body: ["payload"], takes_key: true },
  cancelExecution: { method: "POST", path: "/executions/{execution_id}/cancel", body: ["now"], takes_key: true },
  pauseExecution: { method: "POST", path: "/executions/{execution_id}/pause", takes_key: true },
  resumeExecution: { method: "POST", path: "/executions/{execution_id}/resume", takes_key: true },
  retryNow: { method: "POST", path: "/executions/{execution_id}/retry-now", takes_key: true },
  rerunExecution: { method: "POST", path: "/executions/{execution_id}/rerun", query: ["wait"], body: ["step", "step_run_id", "ctx", "args", "priority"], takes_key: true },
  retryExecution: { method: "POST", path: "/executions/{execution_id}/retry", query: ["wait"], body: ["ctx", "args", "priority"], takes_key: true },
  compensateExecution: { method: "POST", path: "/executions/{execution_id}/compensate", query: ["wait"], takes_key: true },
  cancelExecutions: { method: "POST", path: "/bulk/cancel", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor"], pairs: ["label", "input"], takes_key: true },
  pauseExecutions: { method: "POST", path: "/bulk/pause", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor"], pairs: ["label", "input"], takes_key: true },
  resumeExecutions: { method: "POST", path: "/bulk/resume", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor"], pairs: ["label", "input"], takes_key: true },
  retryExecutions: { method: "POST", path: "/bulk/retry", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor", "ctx", "args", "priority"], pairs: ["label", "input"], takes_key: true },
  rerunExecutions: { method: "POST", path: "/bulk/rerun", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor", "ctx", "args", "priority", "step"], pairs: ["label", "input"], takes_key: true },
  deleteExecutions: { method: "POST", path: "/bulk/delete", body: ["status", "path", "label", "started_from", "started_before", "error", "key", "input", "failed_step", "worker", "longer_than", "due", "ids", "dry_run", "limit", "cursor"], pairs: ["label", "input"], takes_key: true },
  getCtx: { method: "GET", path: "/executions/{execution_id}/ctx" },
  patchCtx: { method: "PATCH", path: "/executions/{execution_id}/ctx", whole: "changes", takes_key: true },
  checkPlaybook: { method: "POST", path: "/playbooks/check", query: ["name", "graph"], whole: "source", media: "application/yaml", reads: true },
  registerPlaybook: { method: "POST", path: "/playbooks", query: ["name"], whole: "source", media: "application/yaml", takes_key: true },
  listPlaybooks: { method: "GET", path: "/playbooks", query: ["limit", "cursor", "prefix", "label", "words", "kind", "last"], pairs: ["label"], next: "cursor" },
  getPlaybook: { method: "GET", path: "/playbooks/{path}", query: ["version"] },
  deletePlaybook: { method: "DELETE", path: "/playbooks/{path}", query: ["version"] },
  getSource: { method: "GET", path: "/playbooks/{path}/source", query: ["version"] },
  putBundle: { method: "POST", path: "/playbooks/{path}/bundle", whole: "source", media: "application/zip", takes_key: true },
  getBundle: { method: "GET", path: "/playbooks/{path}/bundle", query: ["digest"] },
  getPlan: { method: "GET", path: "/playbooks/{path}/plan", query: ["version"] },
  getGraph: { method: "GET", path: "/playbooks/{path}/graph", query: ["version", "digest"] },
  listVersions: { method: "GET", path: "/playbooks/{path}/versions" },
  diffVersions: { method: "GET", path: "/playbooks/{path}/diff", query: ["before", "after"] },
  diffText: { method: "POST", path: "/playbooks/{path}/diff", query: ["name", "before"], whole: "source", media: "application/yaml", reads: true },
  getStatistics: { method: "GET", path: "/playbooks/{path}/statistics", query: ["since"] },
  getSchema: { method: "GET", path: "/schema", query: ["kind"] },
  listSchedules: { method: "GET", path: "/schedules", query: ["limit", "cursor", "prefix"], next: "cursor" },
  getSchedule: { method: "GET", path: "/schedules/{path}" },
  deleteSchedule: { method: "DELETE", path: "/schedules/{path}" },
  listUpcoming: { method: "GET", path: "/schedules/{path}/upcoming", query: ["count", "after"] },
  listOccurrences: { method: "GET", path: "/schedules/{path}/history", query: ["limit", "cursor", "status"], next: "cursor" },
  pauseSchedule: { method: "POST", path: "/schedules/{path}/pause", takes_key: true },
  resumeSchedule: { method: "POST", path: "/schedules/{path}/resume", takes_key: true },
  triggerSchedule: { method: "POST", path: "/schedules/{path}/trigger", takes_key: true },
  backfillSchedule: { method: "POST", path: "/schedules/{path}/backfill", body: ["from", "before", "overlap"], takes_key: true },
  listCredentials: { method: "GET", path: "/credentials" },
  rotateCredentials: { method: "POST", path: "/credentials/rotate", takes_key: true },
  getCredential: { method: "GET", path: "/credentials/{name}" },
  putCredential: { method: "PUT", path: "/credentials/{name}", body: ["value", "kind", "description", "tags"] },
  deleteCredential: { method: "DELETE", path: "/credentials/{name}" },
  getGrants: { method: "GET", path: "/grants", query: ["revision"] },
  putGrants: { method: "PUT", path: "/grants/{revision}", whole: "source", media: "application/yaml" },
  getPlaybookGrants: { method: "GET", path: "/playbooks/{path}/grants" },
  listWorkers: { method: "GET", path: "/workers" },
  listPools: { method: "GET", path: "/pools" },
  listPartitions: { method: "GET", path: "/partitions" },
  listLimits: { method: "GET", path: "/limits", query: ["limit", "cursor"], next: "cursor" },
  getLimit: { method: "GET", path: "/limits/{key}", query: ["namespace"] },
  listDeadLetters: { method: "GET", path: "/dead-letters", query: ["limit", "cursor"], next: "cursor" },
  getDeadLetter: { method: "GET", path: "/dead-letters/{letter_id}" },
  discardDeadLetter: { method: "DELETE", path: "/dead-letters/{letter_id}" },
  requeueDeadLetter: { method: "POST", path: "/dead-letters/{letter_id}/requeue", takes_key: true },
  examine: { method: "GET", path: "/doctor" },
  listStorage: { method: "GET", path: "/storage" },
  listLogs: { method: "GET", path: "/executions/{execution_id}/logs", query: ["step", "task", "iteration", "since", "grep", "after", "limit"] },
  createToken: { method: "POST", path: "/tokens", body: ["name", "role", "paths", "expires"], takes_key: true },
  listTokens: { method: "GET", path: "/tokens" },
  revokeToken: { method: "DELETE", path: "/tokens/{token_id}" },
  listAudit: { method: "GET", path: "/audit", query: ["limit", "cursor", "principal", "operation", "target", "refused"], next: "cursor" },
  checkAudit: { method: "GET", path: "/audit/check", query: ["cursor"] },
  listTriggers: { method: "GET", path: "/triggers", query: ["limit", "cursor", "prefix"], next: "cursor" },
  getTrigger: { method: "GET", path: "/triggers/{path}" },
  deleteTrigger: { method: "DELETE", path: "/triggers/{path}" },
  pauseTrigger: { method: "POST", path: "/triggers/{path}/pause", takes_key: true },
  resumeTrigger: { method: "POST", path: "/triggers/{path}/resume", takes_key: true },
  listTriggerEvents: { method: "GET", path: "/triggers/{path}/events", query: ["limit", "cursor", "status"], next: "cursor" },
  getTriggerEvent: { method: "GET", path: "/triggers/{path}/events/{number}" },
  resendTriggerEvent: { method: "POST", path: "/triggers/{path}/events/{number}/resend", takes_key: true },
  createSignInCode: { method: "POST", path: "/session/codes", takes_key: true },
  signIn: { method: "POST", path: "/session", body: ["code"] },
  signOut: { method: "DELETE", path: "/session" },
  me: { method: "GET", path: "/me" },
}
