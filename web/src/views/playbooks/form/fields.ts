import type { Diagnostic } from '../../../api/types'
import type { Path } from './edits'

/** A field of the form of a document: where its value stands, and how it is typed in. */
export interface FormField {
  path: Path
  label: string
  kind: 'text' | 'lines' | 'choice' | 'yes' | 'number' | 'JSON'
  note?: string
  /** Values of a choice, with what each means; the first is what holds if nothing is written. */
  choices?: readonly (readonly [value: string, words: string])[]
  /** Known values that are offered while one types. */
  known?: 'playbooks' | 'zones'
  isRequired?: boolean
}

/** One of several keys, of which a document has just one: with what it begins, and its fields. */
export interface Way {
  key: string
  words: string
  begins: unknown
  fields: readonly FormField[]
}

/** The form of a kind of document, from top to bottom. */
export interface Form {
  head: readonly FormField[]
  /** Below which key one of the ways stands, and its question. */
  below: Path
  question: string
  ways: readonly Way[]
  rest: readonly FormField[]
}

const spec = (...keys: string[]): Path => ['spec', ...keys]

const HEAD: readonly FormField[] = [
  { path: ['metadata', 'path'], label: 'Path', kind: 'text', isRequired: true },
  { path: ['metadata', 'name'], label: 'Name', kind: 'text', isRequired: true },
  { path: spec('playbook'), label: 'Playbook', kind: 'text', known: 'playbooks', isRequired: true, note: 'What it starts.' },
  { path: spec('version'), label: 'Version', kind: 'text', note: 'Empty: the one registered last.' },
]
const WORKLOAD: FormField = { path: spec('workload'), label: 'Workload', kind: 'JSON' }
const FIVE_FIELDS = 'One a line: minute hour day-of-month month day-of-week, as 0 2 * * MON-FRI.'

const SCHEDULE: Form = {
  head: HEAD,
  below: spec(),
  question: 'When it is due',
  ways: [
    {
      key: 'cron',
      words: 'cron expressions',
      begins: ['30 2 * * *'],
      fields: [
        { path: spec('cron'), label: 'Cron', kind: 'lines', isRequired: true, note: FIVE_FIELDS },
        { path: spec('timezone'), label: 'Time zone', kind: 'text', known: 'zones', isRequired: true },
      ],
    },
    {
      key: 'every',
      words: 'at a distance',
      begins: '1h',
      fields: [{ path: spec('every'), label: 'Every', kind: 'text', isRequired: true, note: '30s, 15m, 6h or 2d.' }],
    },
    {
      key: 'at',
      words: 'at given times',
      begins: [],
      fields: [
        { path: spec('at'), label: 'At', kind: 'lines', isRequired: true, note: 'One a line, as 2026-11-05T09:00.' },
        { path: spec('timezone'), label: 'Time zone', kind: 'text', known: 'zones', note: 'Of times without an offset.' },
      ],
    },
  ],
  rest: [
    {
      path: spec('overlap'),
      label: 'If one still runs',
      kind: 'choice',
      choices: [
        ['skip', 'skip the new one'],
        ['queue_one', 'let one wait'],
        ['queue_all', 'let all wait'],
        ['cancel', 'cancel the old one'],
        ['terminate', 'end the old one at once'],
        ['allow', 'let them run together'],
      ],
    },
    {
      path: spec('missed'),
      label: 'If some were missed',
      kind: 'choice',
      choices: [
        ['last', 'start the last one'],
        ['all', 'start all'],
        ['none', 'start none'],
      ],
    },
    { path: spec('missed_within'), label: 'Missed for at most', kind: 'text', note: '30s, 15m, 6h or 2d.' },
    { path: spec('jitter'), label: 'Jitter', kind: 'text', note: 'Starts up to so much later: 30s, 15m.' },
    { path: spec('window', 'from'), label: 'Not before', kind: 'text', note: 'A day or time.' },
    { path: spec('window', 'until'), label: 'Not after', kind: 'text', note: 'A day, itself included, or time.' },
    { path: spec('exclude'), label: 'Not on', kind: 'lines', note: 'Days, one a line.' },
    { path: spec('pause_after_failures'), label: 'Pause after so many failures in a row', kind: 'number' },
    { path: spec('paused'), label: 'Registered paused', kind: 'yes' },
    { ...WORKLOAD, note: 'Templates over schedule.' },
    { path: spec('labels'), label: 'Labels', kind: 'JSON', note: 'Of the executions, not rendered.' },
    { path: spec('key'), label: 'Key', kind: 'text', note: 'Of each execution: a template over schedule.' },
  ],
}

const hook = (key: string): Path => spec('on', 'webhook', key)
const stream = (key: string): Path => spec('on', 'nats', key)
const end = (key: string): Path => spec('on', 'execution', key)

const TRIGGER: Form = {
  head: HEAD,
  below: spec('on'),
  question: 'On which events',
  ways: [
    {
      key: 'webhook',
      words: 'requests (webhook)',
      begins: { verify: 'github', credential: 'github_webhook' },
      fields: [
        {
          path: hook('verify'),
          label: 'Senders are known by',
          kind: 'choice',
          choices: [
            ['none', 'nothing: anybody may send'],
            ['github', 'the signature of GitHub'],
            ['stripe', 'the signature of Stripe'],
            ['slack', 'the signature of Slack'],
            ['hmac', 'an HMAC signature'],
            ['token', 'a token'],
          ],
        },
        { path: hook('credential'), label: 'Credential', kind: 'text', note: 'It holds the secret.' },
        { path: hook('header'), label: 'Header', kind: 'text', note: 'Of an HMAC signature or a token, as X-Signature.' },
        { path: hook('tolerance'), label: 'Tolerance', kind: 'text', note: 'How far the signed time may be from now. Default: 5m.' },
      ],
    },
    {
      key: 'nats',
      words: 'messages of a stream',
      begins: { stream: 'ORDERS', subject: 'orders.>' },
      fields: [
        { path: stream('stream'), label: 'Stream', kind: 'text', isRequired: true },
        { path: stream('subject'), label: 'Subject', kind: 'text', note: 'orders.*.paid, orders.>. Empty: all.' },
        { path: stream('from'), label: 'From', kind: 'text', note: 'new, all, or a time. Empty: new.' },
        {
          path: stream('format'),
          label: 'Format',
          kind: 'choice',
          choices: [
            ['json', 'JSON'],
            ['text', 'text'],
            ['bytes', 'bytes'],
          ],
        },
      ],
    },
    {
      key: 'execution',
      words: 'ends of executions',
      begins: { path: 'examples/*', status: ['failed'] },
      fields: [
        { path: end('path'), label: 'Of the playbook', kind: 'text', known: 'playbooks', note: 'Or all below a path: shop/*.' },
        { path: end('status'), label: 'Ended as', kind: 'lines', note: 'completed, failed, cancelled; one a line. Empty: however it ends.' },
        { path: end('labels'), label: 'With labels', kind: 'JSON' },
      ],
    },
  ],
  rest: [
    { path: spec('when'), label: 'Only when', kind: 'text', note: 'An expression over event. Empty: always.' },
    { path: spec('key'), label: 'Once for each', kind: 'text', note: 'A template over event: events with the same key start one execution.' },
    { ...WORKLOAD, note: 'Templates over event.' },
    { path: spec('labels'), label: 'Labels', kind: 'JSON', note: 'Of the executions: templates over event.' },
    { path: spec('rate', 'per_minute'), label: 'Starts in a minute at most', kind: 'number' },
    { path: spec('rate', 'burst'), label: 'At once after a rest', kind: 'number' },
    {
      path: spec('rate', 'exceeding'),
      label: 'Events beyond that',
      kind: 'choice',
      choices: [
        ['wait', 'wait'],
        ['drop', 'are dropped'],
      ],
    },
    { path: spec('allow_circle'), label: 'What it starts may start it again', kind: 'yes' },
  ],
}

/** The form of a kind of document; null for those that are written as text alone. */
export const formOf = (kind: string): Form | null => ({ Schedule: SCHEDULE, Trigger: TRIGGER })[kind] ?? null

const pointerOf = (path: Path): string => path.map((key) => `/${key}`).join('')

/** Whether what the server says is about a field: of its value, or that its key is missing. */
export function isAbout({ pointer, message }: Pick<Diagnostic, 'pointer' | 'message'>, { path }: Pick<FormField, 'path'>): boolean {
  const own = pointerOf(path)
  const isMissing = pointer === pointerOf(path.slice(0, -1)) && message.includes(`\`${path.at(-1) ?? ''}\``)
  return pointer === own || pointer.startsWith(`${own}/`) || isMissing
}
