import type { Timeline, TimelineRow } from '../../api/types'
import { colourOf, type Colours } from '../../parts/canvas.svelte'
import { duration } from '../../times'
import { roundStep, xOf, type Stretch } from './stretches'

export const ROW_HEIGHT = 22
export const AXIS_HEIGHT = 24
const LINE_GAP = 90

/** What goes on itself; the other kinds are waits. */
const WORK = new Set(['step', 'iterations', 'task'])
const WORKING = new Set(['task', 'iterations'])
const WAITS = new Set(['timer', 'signal', 'child'])

/** A timeline as it is drawn: `since` and `until` are the range on screen, in ms, which may be another than that read. */
export interface Drawing {
  rows: readonly TimelineRow[]
  /** Where the answer begins and how wide its columns are, in ms. */
  base: number
  columnMs: number
  stretches: readonly Stretch[]
  since: number
  until: number
  labelWidth: number
  width: number
  height: number
  top: number
  chosen: number
  /** The time of the position that is looked at. */
  at: number | null
  /** What is being chosen with the pointer, in pixels. */
  brush: readonly [number, number] | null
}

/** From when to when something went on, in ms: tasks and iterations, and the moments at which anything began or ended. */
export function busyOf(answer: Timeline, until: number): [number, number][] {
  const base = Date.parse(answer.since)
  const column = (Date.parse(answer.until) - base) / answer.width
  const moment = (Date.parse(answer.until) - base) / 100
  const busy: [number, number][] = []
  /** Tasks that do nothing but wait. */
  const waiting = new Set(answer.rows.filter(({ kind }) => WAITS.has(kind)).map(({ step, task }) => `${step}\n${task}`))
  for (const { kind, step, task, spans, activity } of answer.rows) {
    const works = WORKING.has(kind) && !waiting.has(`${step}\n${task}`)
    for (const { offset_ms, ms } of spans ?? []) {
      const [from, to] = [base + offset_ms, ms === null ? until : base + offset_ms + ms]
      if (works) busy.push([from, to])
      busy.push([from, from + moment])
      if (ms !== null) busy.push([to - moment, to])
    }
    if (!works) continue
    for (const one of activity ?? []) for (const [first = 0, count = 1] of one.columns) busy.push([base + first * column, base + (first + count) * column])
  }
  return busy
}

/** What a row is called: a step by its name, a task by its own, a wait by its word. */
export const rowName = ({ kind, step, task }: TimelineRow): string =>
  kind === 'step' ? step : kind === 'task' ? task || 'task' : task ? `${kind} ${task}` : kind

export function draw(context: CanvasRenderingContext2D, drawing: Drawing, colours: Colours, clock: (ms: number) => string): void {
  const { labelWidth, width, height, top, rows } = drawing
  context.font = '12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'
  context.textBaseline = 'middle'
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT))
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_HEIGHT))
  context.save()
  context.beginPath()
  context.rect(labelWidth, 0, width - labelWidth, height)
  context.clip()
  idle(context, drawing, colours)
  axis(context, drawing, colours, clock)
  context.restore()
  for (let index = first; index < last; index++) {
    const row = rows[index]
    const y = AXIS_HEIGHT + index * ROW_HEIGHT - top
    if (row === undefined || y < AXIS_HEIGHT - ROW_HEIGHT) continue
    context.save()
    context.beginPath()
    context.rect(0, AXIS_HEIGHT, width, height - AXIS_HEIGHT)
    context.clip()
    if (index === drawing.chosen) filled(context, colours.chosen, 0, y, labelWidth, ROW_HEIGHT)
    label(context, row, y, labelWidth, colours)
    context.beginPath()
    context.rect(labelWidth, AXIS_HEIGHT, width - labelWidth, height - AXIS_HEIGHT)
    context.clip()
    if (row.spans) spans(context, drawing, row, y, colours)
    else activity(context, drawing, row, y, colours)
    context.restore()
  }
  marks(context, drawing, colours)
}

function filled(context: CanvasRenderingContext2D, colour: string, x: number, y: number, width: number, height: number): void {
  context.fillStyle = colour
  context.fillRect(x, y, width, height)
}

function label(context: CanvasRenderingContext2D, row: TimelineRow, y: number, width: number, colours: Colours): void {
  const indent = row.kind === 'step' || row.step === '' ? 8 : 20
  const count = row.count > 1 ? ` ${row.count.toLocaleString('en')}` : ''
  const room = Math.floor((width - indent - 8) / 7.3) - count.length
  const name = rowName(row)
  context.fillStyle = row.kind === 'step' ? colours.text : colours.quiet
  context.fillText(name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name, indent, y + ROW_HEIGHT / 2)
  context.fillStyle = colours.quiet
  context.textAlign = 'right'
  context.fillText(count, width - 8, y + ROW_HEIGHT / 2)
  context.textAlign = 'left'
}

const colourIn = (row: TimelineRow, status: string, colours: Colours): string =>
  WORK.has(row.kind) ? colourOf(status, colours) : row.kind === 'queued' ? colours.edge : colours.warn

function spans(context: CanvasRenderingContext2D, drawing: Drawing, row: TimelineRow, y: number, colours: Colours): void {
  const { stretches, base, labelWidth, until } = drawing
  const thin = row.kind === 'step' ? 4 : 7
  for (const span of row.spans ?? []) {
    const from = base + span.offset_ms
    const to = span.ms === null ? until : from + span.ms
    const x = labelWidth + xOf(stretches, from)
    const width = Math.max(2, labelWidth + xOf(stretches, to) - x)
    context.globalAlpha = WORK.has(row.kind) ? 1 : 0.55
    filled(context, colourIn(row, span.status, colours), x, y + thin, width, ROW_HEIGHT - 2 * thin)
  }
  context.globalAlpha = 1
}

/** How many were going on, as heights: those of the row's most are as high as the row. */
function activity(context: CanvasRenderingContext2D, drawing: Drawing, row: TimelineRow, y: number, colours: Colours): void {
  const { stretches, base, columnMs, labelWidth } = drawing
  const counts = row.activity ?? []
  const most = Math.max(1, ...counts.flatMap((one) => one.columns.map(([, , count = 0]) => count)))
  const room = ROW_HEIGHT - 4
  for (const { status, columns } of counts) {
    context.globalAlpha = WORK.has(row.kind) ? 0.85 : 0.55
    for (const [first = 0, wide = 1, count = 0] of columns) {
      const x = labelWidth + xOf(stretches, base + first * columnMs)
      const end = labelWidth + xOf(stretches, base + (first + wide) * columnMs)
      const high = Math.max(1.5, (count / most) * room)
      filled(context, colourIn(row, status, colours), x, y + ROW_HEIGHT - 2 - high, Math.max(1, end - x), high)
    }
  }
  context.globalAlpha = 1
}

function idle(context: CanvasRenderingContext2D, { stretches, labelWidth, height }: Drawing, colours: Colours): void {
  for (const part of stretches) {
    if (!part.idle) continue
    filled(context, colours.raised, labelWidth + part.x, 0, part.width, height)
    context.strokeStyle = colours.edge
    context.setLineDash([2, 3])
    context.beginPath()
    for (const x of [labelWidth + part.x + 0.5, labelWidth + part.x + part.width - 0.5]) {
      context.moveTo(x, 0)
      context.lineTo(x, height)
    }
    context.stroke()
    context.setLineDash([])
    context.fillStyle = colours.quiet
    context.textAlign = 'center'
    context.fillText(duration((part.to - part.from) / 1000), labelWidth + part.x + part.width / 2, AXIS_HEIGHT / 2)
    context.textAlign = 'left'
  }
}

function axis(context: CanvasRenderingContext2D, drawing: Drawing, colours: Colours, clock: (ms: number) => string): void {
  const { stretches, labelWidth, height } = drawing
  context.strokeStyle = colours.line
  for (const part of stretches) {
    if (part.idle || part.width < LINE_GAP / 2) continue
    const step = roundStep(((part.to - part.from) / part.width) * LINE_GAP)
    for (let at = Math.ceil(part.from / step) * step; at < part.to; at += step) {
      const x = Math.round(labelWidth + xOf(stretches, at)) + 0.5
      context.beginPath()
      context.moveTo(x, AXIS_HEIGHT - 4)
      context.lineTo(x, height)
      context.stroke()
      if (x + LINE_GAP > labelWidth + part.x + part.width) continue
      context.fillStyle = colours.quiet
      context.fillText(step < 1000 ? `${clock(at)}.${String(at % 1000).padStart(3, '0')}` : clock(at), x + 3, AXIS_HEIGHT / 2)
    }
  }
}

function marks(context: CanvasRenderingContext2D, drawing: Drawing, colours: Colours): void {
  const { at, brush, labelWidth, height, width, stretches } = drawing
  filled(context, colours.line, 0, AXIS_HEIGHT - 1, width, 1)
  filled(context, colours.line, labelWidth - 1, 0, 1, height)
  if (at !== null && at >= drawing.since && at <= drawing.until) filled(context, colours.bad, labelWidth + xOf(stretches, at), 0, 1.5, height)
  if (brush === null) return
  context.globalAlpha = 0.25
  filled(context, colours.accent, Math.min(...brush), 0, Math.abs(brush[1] - brush[0]), height)
  context.globalAlpha = 1
}
