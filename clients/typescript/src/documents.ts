// The documents of the HTTP API. Made by scripts/typescript_code.py: do not edit.

export interface Accepted {
  execution_id: string
  position?: number | null
  already?: boolean
}

export interface Activity {
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "skipped" | "waiting"
  columns: number[][]
}

export interface AgentMessage {
}

export interface ApiToken {
  id: string
  name: string
  role: "admin" | "author" | "operator" | "viewer"
  paths: string[]
  created: string
  created_by: string
  expires: string | null
  last_used: string | null
  revoked: string | null
  revoked_by: string | null
}

export interface ApiTokenRequest {
  name: string
  role: "viewer" | "operator" | "author" | "admin"
  paths?: string[]
  expires?: string | "never" | null
}

export interface ApiTokens {
  items: ApiToken[]
}

export interface Arc {
  from: string
  to: string
  when: string | null
  kind: string
  is_else: boolean
  index: number
  line: number
}

export interface ArcActivity {
  from: string
  to: string
  index: number
  fired: number
  skipped: number
  last: ArcDecision | null
}

export interface ArcDecision {
  position: number
  step_run_id: string
  fired: boolean
  held: boolean | null
  guard: Guard | null
}

export interface AuditCheck {
  checked: number
  unchained: number
  faults: AuditFault[]
  next: string | null
}

export interface AuditEntry {
  number: number
  at: string
  principal: string
  role: string
  method: string
  operation: string
  target: string
  correlation_id: string
  remote: string
  idempotency_key: string
  status: number | null
  reason: string
  made: string
  left_out: number
}

export interface AuditFault {
  number: number
  part: "answer" | "call"
  fault: "changed" | "inserted" | "missing"
  says: string
}

export interface AuditPage {
  items: AuditEntry[]
  next: string | null
}

export interface AwaitedChild {
  execution_id: string
  path: string
  status: string | null
}

export interface AwaitedJoin {
  tokens: "all" | "any" | number | null
  arrived: string[]
  coming: string[]
}

export interface AwaitedPool {
  pool: string
  workers?: number | null
  slots?: number | null
  busy?: number | null
  queued?: number | null
  priority?: number | null
  ahead?: number | null
}

export interface AwaitedSlot {
  key: string
  namespace?: string
  place?: number | null
  queued?: number | null
  held?: number | null
  concurrency?: number | null
  next_at?: string | null
  catching_up?: boolean
  holders?: Slot[]
}

export interface Backfill {
  next: string
  before: string
  overlap: "allow" | "cancel" | "queue_all" | "queue_one" | "skip" | "terminate"
  left: number
}

export interface BackfillRequest {
  from: string
  before: string
  overlap?: "skip" | "queue_one" | "queue_all" | "cancel" | "terminate" | "allow"
}

export interface Backfilled {
  path: string
  occurrences: number
}

export interface Bulk {
  items: BulkItem[]
  counts: Record<string, number>
  next: string | null
}

export interface BulkItem {
  execution_id: string
  outcome: "already" | "done" | "left" | "refused" | "skipped" | "would"
  path?: string | null
  status?: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting" | null
  position?: number | null
  made?: string | null
  detail?: string | null
  hint?: string | null
}

export interface BulkRerunRequest {
  status?: ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[]
  path?: string | null
  label?: string[]
  started_from?: string | null
  started_before?: string | null
  error?: string | null
  key?: string | null
  input?: string[]
  failed_step?: string | null
  worker?: string | null
  longer_than?: string | null
  due?: string | null
  ids?: string[] | null
  dry_run?: boolean
  limit?: number
  cursor?: string | null
  ctx?: Record<string, unknown>
  args?: Record<string, unknown> | null
  priority?: number | null
  step: string
}

export interface BulkRetryRequest {
  status?: ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[]
  path?: string | null
  label?: string[]
  started_from?: string | null
  started_before?: string | null
  error?: string | null
  key?: string | null
  input?: string[]
  failed_step?: string | null
  worker?: string | null
  longer_than?: string | null
  due?: string | null
  ids?: string[] | null
  dry_run?: boolean
  limit?: number
  cursor?: string | null
  ctx?: Record<string, unknown>
  args?: Record<string, unknown> | null
  priority?: number | null
}

export interface Bundle {
  name: string
  files: number
  bytes: number
}

export interface Call {
  execution_id: string
  path: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting" | null
  step_run_id: string
  iteration: number[]
}

export interface CallPage {
  items: Call[]
  next: string | null
}

export interface Caller {
  principal: string
  role: "admin" | "author" | "operator" | "viewer"
  paths: string[]
  operations: string[]
  expires: string | null
}

export interface CancelRequest {
  now?: boolean
}

export interface ChangedArc {
  from: string
  to: string
  change: "added" | "changed" | "removed"
  when: string | null
  was: string | null
}

export interface ChangedNames {
  added: string[]
  removed: string[]
  changed: string[]
}

export interface Check {
  check: string
  verdict: "ok" | "skipped" | "warning" | "wrong"
  says: string
  mend?: string
}

export interface Checked {
  ok: boolean
  path: string | null
  version: string | null
  digest: string | null
  diagnostics: Diagnostic[]
  graph?: Graph | null
}

export interface Checks {
  items: Check[]
}

export interface ChildUse {
  busy: number
  most: number
  waiting: number
}

export interface Column {
  name: string
  type: string
}

export interface ComparedExecution {
  execution_id: string
  path: string
  version: string | null
  digest: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  started: string
  duration_s: number | null
  rerun_of: string | null
  position: number
  compared: number
}

export interface ComparedRun {
  step_run_id: string | null
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting"
  position: number
  duration_s: number | null
}

export interface ComparedStep {
  step: string
  same: number
  different: number
  only_a: number
  only_b: number
  duration_a_s: number
  duration_b_s: number
}

export interface Compensation {
  step: string
  step_run_id: string
  undone: boolean
  reason: string
}

export interface Credential {
  name: string
  kind: string
  description: string
  tags: string[]
  version: number
  key_id: string
  created: string
  updated: string
}

export interface CredentialRequest {
  value: string | Record<string, unknown>
  kind?: string
  description?: string
  tags?: string[]
}

export interface Credentials {
  items: Credential[]
}

export interface Ctx {
  ctx: Record<string, unknown>
  version: number
  history: CtxChange[]
}

export interface CtxChange {
  position: number
  at: string
  event: string
  keys: string[]
  principal: string
  reason: string
  correlation_id: string
  step: string | null
  step_run_id: string | null
  task: string | null
}

export interface DataReference {
  key: string
  size: number
  checksum: string
  seal?: string
  name?: string
  media_type?: string
  columns?: Column[] | null
  rows?: number | null
  first?: number
}

export interface DataUse {
  position: number
  at: string
  step: string
  step_run_id: string
  iteration: number[]
  task: string
  attempt: number
  read: DataReference[]
  written: DataReference[]
  datasets?: Dataset[]
}

export interface Dataset {
  namespace: string
  name: string
  written?: boolean
  columns?: string[]
}

export interface DeadLetter {
  id: string
  at: string
  source: "command" | "events" | "inbox"
  partition: number
  execution_id: string
  subject: string
  reason: string
  size: number
  sequence: number | null
  state: "discarded" | "requeued" | "waiting"
  settled_at: string | null
  settled_by: string | null
}

export interface DeadLetterPage {
  items: DeadLetter[]
  next: string | null
}

export interface DeadLetterWithBody {
  id: string
  at: string
  source: "command" | "events" | "inbox"
  partition: number
  execution_id: string
  subject: string
  reason: string
  size: number
  sequence: number | null
  state: "discarded" | "requeued" | "waiting"
  settled_at: string | null
  settled_by: string | null
  body: string
  encoding: "base64" | "text"
}

export interface Delivered {
  number?: number | null
  status?: "ignored" | "repeated" | "started" | "waiting" | null
  execution_id?: string | null
  execution_status?: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting" | null
  challenge?: string | null
}

export interface Described {
  openapi: string
  paths: Record<string, unknown>
}

export interface Diagnostic {
  severity: "error" | "warning"
  code: string
  message: string
  hint: string | null
  file: string
  line: number
  column: number
  pointer: string
  path?: Firing[]
}

export interface DiffRow {
  step: string
  iteration: number[] | null
  state: "different" | "only_a" | "only_b" | "same"
  a: ComparedRun | null
  b: ComparedRun | null
  iterations: number
  difference: Divergence | null
}

export interface DiscardedToken {
  token: string
  step: string
  reason: string
}

export interface Divergence {
  kind: "admission" | "arc" | "cancel" | "end" | "finish" | "iteration" | "loop" | "loop_end" | "patch" | "signal" | "task" | "token" | "workload"
  text: string
  step: string | null
  task: string | null
  iteration: number[] | null
  a: DivergenceSide
  b: DivergenceSide
  differences: ValueDifferences
}

export interface DivergenceSide {
  position: number | null
  at: string | null
  event: string | null
  step_run_id: string | null
  guards: Guard[]
  place: string | null
  waiting_on: WaitingOn | null
}

export interface Durations {
  count: number
  p50: number
  p90: number
  p99: number
  longest: number
}

export interface ErrorInfo {
  kind: string
  message: string
  retryable?: boolean
  retry_after_s?: number | null
  task?: string | null
  index?: number | null
  code?: string | null
}

export interface EvaluatedGuard {
  when: string
  value: boolean
  rule: number
  waits_for?: string
}

export interface Event {
  event_id: string
  execution_id: string
  position: number
  ts: string
  source: "client" | "server" | "worker"
  name: string
  entity: "ctx" | "loop" | "next" | "playbook" | "step" | "task" | "token" | "workflow"
  entity_id: string
  status: "error" | "in_progress" | "paused" | "success"
  step_run_id: string | null
  report_id: string | null
  cause_id: string | null
  trace_id: string
  actor: string
  task: string | null
  attempt: number | null
  iteration: number[] | null
  tokens_consumed: string[] | null
  tokens_produced: string[] | null
  guards: EvaluatedGuard[] | null
  digest: string
  data: Record<string, unknown>
}

export interface EventPage {
  items: ListedEvent[]
  next: number | null
  previous?: number | null
}

export interface Execution {
  execution_id: string
  path: string
  version: string | null
  digest: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  started: string
  updated: string
  finished: string | null
  duration_s: number | null
  labels: Record<string, unknown>
  error: ErrorInfo | null
  key?: string | null
  inputs?: Record<string, unknown>
  failed_step?: string | null
  workers?: string[]
  due?: string | null
  result: unknown
  ctx: Record<string, unknown>
  ctx_version: number
  position: number
  discarded_tokens: number
  discarded: DiscardedToken[] | null
  warnings: Warning[] | null
  trace_id: string
  principal: string
  rerun_of: string | null
  parent: ParentExecution | null
  steps: StepSummary[] | null
  waits: Wait[] | null
  priority?: number | null
  origin?: Origin | null
  already?: boolean
  workload?: unknown
  compensations?: Compensation[]
  undoes?: string[]
}

export interface ExecutionDiff {
  a: ComparedExecution
  b: ComparedExecution
  first: Divergence | null
  first_choice: Divergence | null
  workload: ValueDifferences
  ctx: ValueDifferences
  results: StepDifferences[]
  result: ValueDifferences
  steps: ComparedStep[]
  rows: DiffRow[]
  row_count: number
  next: string | null
}

export interface ExecutionGraph {
  execution_id: string
  position: number
  at: string
  graph: Graph
  steps: StepActivity[]
  arcs: ArcActivity[]
}

export interface ExecutionGroup {
  value: string | null
  counts: Record<string, number>
}

export interface ExecutionGroups {
  items: ExecutionGroup[]
  more: number
  complete: boolean
}

export interface ExecutionHistogram {
  since: string
  until: string
  first: string
  bar_s: number
  bars: Record<string, number[]>
  counts: Record<string, number>
  complete: boolean
}

export interface ExecutionPage {
  items: ListedExecution[]
  next: string | null
}

export interface ExecutionState {
  execution_id: string
  position: number
  last: number
  at: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  error: ErrorInfo | null
  tokens: PlacedToken[]
  more: number
  places: StepPlaces[]
  steps: StepRunCounts[] | null
  ctx: Record<string, unknown>
  ctx_version: number
  results: StepResult[]
  statuses?: StepStatus[]
}

export interface ExpectedKey {
  key: string
  values: ExpectedValue[]
  path?: string[]
}

export interface ExpectedValue {
  value: unknown
  moves?: boolean | null
  to?: string[]
}

export interface Failure {
  execution_id: string
  path: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  step: string | null
  step_run_id: string | null
  task: string | null
  iteration: number[]
  attempt: number | null
  attempts: number | null
  worker: string
  error: ErrorInfo | null
  traceback: string
}

export interface Fault {
  detail: string
  pointer?: string | null
  parameter?: string | null
}

export interface Firing {
  step: string
  event: string
  line: number
  to: string[]
  repeats?: boolean
}

export interface Grants {
  origin: "file" | "none" | "registered"
  revision: number
  source: string
  registered?: string | null
  registered_by?: string | null
}

export interface Graph {
  steps: string[]
  arcs: Arc[]
  path: string
  digest: string
  nodes: StepNode[]
}

export interface Guard {
  when: string
  holds: boolean | null
  values: Record<string, unknown>
  missing: string[]
  to: string | null
}

export interface Idle {
  offset_ms: number
  ms: number | null
}

export interface Iteration {
  path: number[]
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting"
  started: string | null
  finished: string | null
  worker: string
  attempts: number
  result: unknown
  error: ErrorInfo | null
}

export interface IterationPage {
  items: Iteration[]
  next: string | null
}

export interface IterationSummaries {
  items: IterationSummary[]
  next: number | null
}

export interface IterationSummary {
  path: number[]
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "skipped" | "waiting"
  started: string | null
  duration_s: number | null
  attempts: number
  error: ErrorInfo | null
}

export interface KeyChange {
  key: string
  position: number
  at: string
  event: string
  principal: string
  reason: string
  correlation_id: string
  step: string | null
  step_run_id: string | null
  task: string | null
  iteration: number[] | null
  had: boolean
  before: unknown
  has: boolean
  after: unknown
}

export interface KeyChangePage {
  items: KeyChange[]
  next: string | null
}

export interface LastExecution {
  execution_id: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  started: string
  finished: string | null
}

export interface Limit {
  key: string
  namespace: string
  concurrency: number | null
  rate: Rate | null
  held: number
  queued: number
  set_by: string
  set_at: string
  replaced: string
  next_at: string | null
  catching_up: boolean
  used_by: string[]
}

export interface LimitPage {
  items: Limit[]
  next: string | null
}

export interface LimitWithSlots {
  key: string
  namespace: string
  concurrency: number | null
  rate: Rate | null
  held: number
  queued: number
  set_by: string
  set_at: string
  replaced: string
  next_at: string | null
  catching_up: boolean
  used_by: string[]
  holders: Slot[]
  waiting: Slot[]
}

export interface LineagePage {
  items: DataUse[]
  next: string | null
}

export interface ListedEvent {
  event_id?: string
  execution_id?: string
  position?: number
  ts?: string
  source?: "client" | "server" | "worker"
  name?: string
  entity?: "ctx" | "loop" | "next" | "playbook" | "step" | "task" | "token" | "workflow"
  entity_id?: string
  status?: "error" | "in_progress" | "paused" | "success"
  step_run_id?: string | null
  report_id?: string | null
  cause_id?: string | null
  trace_id?: string
  actor?: string
  task?: string | null
  attempt?: number | null
  iteration?: number[] | null
  tokens_consumed?: string[] | null
  tokens_produced?: string[] | null
  guards?: EvaluatedGuard[] | null
  digest?: string
  data?: Record<string, unknown>
  step?: string | null
}

export interface ListedExecution {
  execution_id: string
  path: string
  version: string | null
  digest: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  started: string
  updated: string
  finished: string | null
  duration_s: number | null
  labels: Record<string, unknown>
  error: ErrorInfo | null
  key?: string | null
  inputs?: Record<string, unknown>
  failed_step?: string | null
  workers?: string[]
  due?: string | null
}

export interface ListedPlaybook {
  path: string
  version: string | null
  revision: number
  digest: string
  name: string
  description: string | null
  labels: Record<string, unknown>
  tags: string[]
  registered_by: string
  registered: string
  known_as: string
  kind?: string
  last?: LastExecution | null
}

export interface Liveness {
  status: string
}

export interface LogLine {
  id: string
  at: string
  step: string
  step_run_id: string
  task: string
  attempt: number
  iteration: number[]
  stream: "stderr" | "stdout" | "worker"
  text: string
  pool: string
  worker: string
}

export interface LogPage {
  items: LogLine[]
  next: string
  state: "ended" | "live" | "more"
}

export interface LoopCounts {
  count: number
  ok: number
  failed: number
  skipped: number
  failed_leaves: number
}

export interface LoopStrip {
  execution_id: string
  step_run_id: string
  position: number
  within: number[]
  count: number
  totals: RunCounts
  first: number
  end: number
  size: number
  strips: StripCounts[]
}

export interface NewApiToken {
  id: string
  name: string
  role: "admin" | "author" | "operator" | "viewer"
  paths: string[]
  created: string
  created_by: string
  expires: string | null
  last_used: string | null
  revoked: string | null
  revoked_by: string | null
  secret?: string | null
}

export interface Occurrence {
  number: number
  status: "cancelled" | "completed" | "failed" | "skipped" | "started" | "waiting"
  scheduled: string
  due: string
  cause: string
  execution_id: string | null
  started: string | null
  ended: string | null
  reason: string
}

export interface OccurrencePage {
  items: Occurrence[]
  next: string | null
}

export interface OneVariable {
  execution_id: string
  var_name: string
  value: unknown
}

export interface Origin {
  kind: "call" | "client" | "rerun" | "schedule" | "trigger"
  path: string | null
  number: number | null
  execution_id: string | null
}

export interface ParentExecution {
  execution_id: string
  step_run_id: string
}

export interface Partition {
  partition: number
  owner: string | null
  epoch: number
  live: boolean
  folded: number
  behind: number
}

export interface Partitions {
  items: Partition[]
}

export interface Pause {
  reason: string
  since: string
}

export interface PlacedToken {
  place: "admission" | "child" | "claimed" | "held" | "join" | "limit" | "next" | "queued" | "retry" | "routing" | "running" | "signal" | "suspended" | "timer" | "token"
  step: string
  token_id: string
  step_run_id: string | null
  from_step: string | null
  count: number
  task: string | null
  iteration: number[]
  since: string | null
  loop: LoopCounts | null
  waiting_on: WaitingOn | null
}

export interface Plan {
}

export interface Playbook {
  path: string
  version: string | null
  revision: number
  digest: string
  name: string
  description: string | null
  labels: Record<string, unknown>
  tags: string[]
  registered_by: string
  registered: string
  known_as: string
  kind?: string
}

export interface PlaybookDiff {
  same: boolean
  before: Playbook | null
  after: Playbook | null
  text: string
  steps: ChangedNames
  arcs: ChangedArc[]
}

export interface PlaybookGrants {
  path: string
  namespace: string
  credentials: string[]
  calls: string[]
  pools: string[]
  kinds: string[]
  limits: string[]
}

export interface PlaybookPage {
  items: ListedPlaybook[]
  next: string | null
}

export interface PlaybookSchema {
}

export interface PlaybookStatistics {
  path: string
  since: string
  until: string
  executions: number
  is_sample: boolean
  statuses: Record<string, number>
  failure_rate: number | null
  duration: Durations | null
  buckets: StatisticsBucket[]
  sampled_executions: number
  steps: StepStatistics[]
}

export interface PlaybookVersions {
  items: Playbook[]
}

export interface PlaybookWithSource {
  source: string
  path: string
  version: string | null
  revision: number
  digest: string
  name: string
  description: string | null
  labels: Record<string, unknown>
  tags: string[]
  registered_by: string
  registered: string
  known_as: string
  kind?: string
}

export interface Pool {
  pool: string
  workers: number
  slots: number
  busy: number
  queued: number
  running: number
  again: number
  oldest?: string | null
  by_priority?: Record<string, number>
  unreadable?: string | null
  labels?: Record<string, string>
}

export interface Pools {
  items: Pool[]
}

export interface Problem {
  type: string
  title: string
  status: number
  detail: string
  hint?: string | null
  diagnostics?: Diagnostic[] | null
  errors?: Fault[] | null
  left_out?: number
  instance: string
}

export interface Rate {
  per_s: number
  burst: number
}

export interface ReadinessReport {
  ready: boolean
  missing: string[]
}

export interface Reason {
  kind: string
  sentence: string
  moves: string
  since: string | null
  until: string | null
  step: string | null
  task: string | null
  iteration: number[]
  details: Record<string, unknown>
  waiting_on?: WaitingOn | null
}

export interface Registered {
  created: boolean
  path: string
  version: string | null
  revision: number
  digest: string
  name: string
  description: string | null
  labels: Record<string, unknown>
  tags: string[]
  registered_by: string
  registered: string
  known_as: string
  kind?: string
}

export interface RegisteredSchedule {
  path: string
  playbook: string
  version: string | null
  revision: number
  digest: string
  registered_by: string
  registered: string
  timetable: Timetable
  jitter_s: number
  overlap: "allow" | "cancel" | "queue_all" | "queue_one" | "skip" | "terminate"
  missed: "all" | "last" | "none"
  missed_within_s: number | null
  pause_after_failures: number | null
  next: string | null
  paused: Pause | null
  failures: number
  running: string[]
  waiting: number
  backfill: Backfill | null
  occurrences: number
  calls?: string | null
}

export interface RerunRequest {
  step?: string | null
  step_run_id?: string | null
  ctx?: Record<string, unknown>
  args?: Record<string, unknown> | null
  priority?: number | null
}

export interface Result {
  execution_id: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  result: unknown
  error: ErrorInfo | null
}

export interface RetryRequest {
  ctx?: Record<string, unknown>
  args?: Record<string, unknown> | null
  priority?: number | null
}

export interface Rotated {
  rotated: string[]
  problems: string[]
}

export interface RunCounts {
  waiting?: number
  running?: number
  done?: number
  failed?: number
  cancelled?: number
  reused?: number
  skipped?: number
}

export interface RunningCommand {
  execution_id: string
  command_id: string
  step: string
  delivered: number
  waits_for?: string
  task_waits_for?: string
}

export interface SchedulePage {
  items: RegisteredSchedule[]
  next: string | null
}

export interface SelectionRequest {
  status?: ("waiting" | "paused" | "compensating" | "quarantined" | "pending" | "running" | "completed" | "failed" | "cancelled")[]
  path?: string | null
  label?: string[]
  started_from?: string | null
  started_before?: string | null
  error?: string | null
  key?: string | null
  input?: string[]
  failed_step?: string | null
  worker?: string | null
  longer_than?: string | null
  due?: string | null
  ids?: string[] | null
  dry_run?: boolean
  limit?: number
  cursor?: string | null
}

export interface Session {
  csrf_token: string
  expires: string
}

export interface SignInCode {
  expires: string
  code?: string | null
}

export interface SignInRequest {
  code: string
}

export interface SignalRequest {
  payload?: unknown
}

export interface Slot {
  execution_id: string
  path: string
  step: string | null
  step_run_id: string | null
  task: string | null
  since: string
}

export interface Span {
  offset_ms: number
  ms: number | null
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "skipped" | "waiting"
  position: number
  step_run_id: string | null
}

export interface StartRequest {
  path?: string | null
  version?: string | null
  digest?: string | null
  playbook?: string | null
  workload?: Record<string, unknown>
  ctx?: Record<string, unknown>
  labels?: Record<string, string | number | boolean | null>
  key?: string
  unique?: boolean
  priority?: number | null
}

export interface StatisticsBucket {
  start: string
  statuses: Record<string, number>
  duration: Durations | null
}

export interface StepActivity {
  step: string
  runs: RunCounts
  iterations: RunCounts | null
  places: Record<string, number>
  status?: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting" | null
}

export interface StepDifferences {
  step: string
  differences: ValueDifferences
}

export interface StepNode {
  step: string
  line: number
  kinds: string[]
  loop: string[]
  join: string | null
  admission: boolean
  waits: string[]
  routing: string
  is_entry: boolean
  is_reached: boolean
  is_finally?: boolean
  undone_by?: string[]
}

export interface StepPlaces {
  step: string
  places: Record<string, number>
}

export interface StepResult {
  step: string
  result: unknown
  error: ErrorInfo | null
}

export interface StepRun {
  step_run_id: string
  step: string
  token: Token
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting"
  claimed: string
  started: string | null
  finished: string | null
  duration_s: number | null
  worker: string
  attempts: number
  retries: number
  loop: LoopCounts | null
  result: unknown
  error: ErrorInfo | null
}

export interface StepRunCounts {
  step: string
  waiting: number
  running: number
  done: number
  failed: number
  cancelled: number
  reused: number
}

export interface StepRunResult {
  execution_id: string
  step_run_id: string
  step: string
  result: unknown
}

export interface StepRuns {
  items: StepRun[]
  count?: number | null
  next?: number | null
}

export interface StepStatistics {
  step: string
  done: number
  failed: number
  failure_rate: number
  duration: Durations
}

export interface StepStatus {
  step: string
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting"
}

export interface StepSummary {
  step: string
  runs: number
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "waiting"
  duration_s: number
  retries: number
}

export interface Storage {
  items: Stored[]
}

export interface Stored {
  store: "account" | "database" | "objects" | "stream" | "table"
  name: string
  bytes: number
  max_bytes: number | null
  items: number | null
}

export interface StoredBundle {
  name: string
  files: number
  bytes: number
  content: string
}

export interface StoredTable {
  execution_id: string
  rows: number
  rows_read: number
  columns: TableColumn[]
  columns_left_out: number
  first_rows: ((string | null)[])[]
  note: string
}

export interface StripCounts {
  status: "cancelled" | "done" | "failed" | "reused" | "running" | "skipped" | "waiting"
  counts: number[]
}

export interface TableColumn {
  column: string
  type: string
  nulls: number | null
  low: string | null
  high: string | null
  whole: boolean
  counts: ValueCount[]
}

export interface Timeline {
  execution_id: string
  position: number
  begun: string
  last: string
  since: string
  until: string
  width: number
  runs: Activity[]
  idle: Idle[]
  first: number
  rows: TimelineRow[]
  more: number
  left_out: number
}

export interface TimelineRow {
  kind: string
  step: string
  task: string
  count: number
  spans: Span[] | null
  activity: Activity[] | null
}

export interface Timer {
  purpose: "admission" | "compensation" | "deadline" | "execution" | "grace" | "next" | "step" | "wait"
  due: string
  on_timeout: "discard" | "fail" | null
}

export interface Timetable {
  timezone: string
  cron: string[]
  every_s: number | null
  at: string[]
}

export interface Token {
  token_id: string
  cause: "arc" | "compensation" | "finally" | "injected" | "join" | "rerun" | "start"
  args: Record<string, unknown>
  from_step: string | null
  from_step_run_id: string | null
  trace_id: string
  lineage: Record<string, number>
  priority?: number | null
  partition?: string | null
}

export interface TokenRequest {
  step: string
  args?: Record<string, unknown>
}

export interface TriggerEvent {
  number: number
  at: string
  status: "ignored" | "repeated" | "started" | "waiting"
  execution_id: string | null
  reason: string | null
  key: string | null
  resent: number | null
  depth: number | null
  fault?: boolean
  event?: Record<string, unknown> | null
}

export interface TriggerEventPage {
  items: TriggerEvent[]
  next: string | null
}

export interface TriggerFaults {
  count: number
  number: number
  at: string
  reason: string
}

export interface TriggerPage {
  items: TriggerState[]
  next: string | null
}

export interface TriggerState {
  path: string
  source: "event" | "execution" | "nats" | "webhook"
  on: Record<string, unknown>
  address: string | null
  playbook: string
  version: string | null
  when: string | boolean
  workload: Record<string, unknown>
  key: string | null
  revision: number
  digest: string
  registered: string
  registered_by: string
  paused: string | null
  events: number
  waiting?: number
  rate?: Record<string, unknown> | null
  faults?: TriggerFaults | null
  stream?: TriggerStream | null
}

export interface TriggerStream {
  consumer: string
  sequence: number | null
  pending: number | null
  running: number
  trouble: string | null
  since: string | null
}

export interface Upcoming {
  at: string
  utc: string
  starts: string
  note?: string
}

export interface UpcomingOccurrences {
  items: Upcoming[]
}

export interface ValueCount {
  low: string
  high: string
  rows: number
}

export interface ValueDifference {
  pointer: string
  in_a: boolean
  a: unknown
  in_b: boolean
  b: unknown
  is_volatile: boolean
}

export interface ValueDifferences {
  items: ValueDifference[]
  left_out: number
}

export interface Variable {
  value: unknown
}

export interface Variables {
  execution_id: string
  variables: Record<string, Variable>
  count: number
}

export interface VariablesRequest {
  variables: Record<string, unknown>
  var_type?: string
  source_step?: string | null
}

export interface VariablesSet {
  execution_id: string
  variables_set: number
  var_names: string[]
}

export interface Wait {
  step: string
  task: string | null
  iteration: number[]
  for: string
  until: string | null
  waiting_on?: WaitingOn
}

export interface WaitingOn {
  guards?: Guard[]
  ctx?: string[]
  steps?: string[]
  timer?: Timer | null
  signal?: string | null
  child?: AwaitedChild | null
  join?: AwaitedJoin | null
  commands?: string[]
  worker?: string | null
  pool?: AwaitedPool | null
  request?: "resume" | null
  reference?: string | null
  choices?: string[]
  execution?: string | null
  partition?: number | null
  expects?: ExpectedKey[]
  schema?: unknown
  slot?: AwaitedSlot | null
}

export interface Warning {
  kind: string
  message: string
  step: string | null
}

export interface Why {
  execution_id: string
  status: "cancelled" | "compensating" | "completed" | "failed" | "paused" | "pending" | "quarantined" | "running" | "waiting"
  summary: string
  since: string
  reasons: Reason[]
  more: number
  causes?: Failure[]
}

export interface Worker {
  name: string
  pool: string
  slots: number
  busy: number
  since: string
  kinds: string[]
  draining: boolean
  version: string
  running: RunningCommand[]
  children?: Record<string, ChildUse>
  confinement?: string
  network?: string
  unfit?: string
  labels?: Record<string, string>
}

export interface Workers {
  items: Worker[]
}

/** An event of all executions. `feed_id` is its place among them: a reader goes on after it. */
export interface FeedEvent extends Event {
  feed_id: string
}
