import type { Activity, TimelineRow } from 'noetl-stream-client'
import { colourOf, type Colours } from '../../parts/canvas.svelte'
import { signOf, undoneBy, type Undoing } from '../graph/undoing'
import { duration } from '../../times'
import { placeOfWords, stacked } from './bars'
import { roundStep, xOf, type Stretch } from './stretches'

export const ROW_HEIGHT = 22
export const AXIS_HEIGHT = 24
/** Of the line of all step runs, which stands between the axis and the rows where not all rows are on screen. */
export const LANE_HEIGHT = 34
const LINE_GAP = 90

const FONT = '12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'
const SMALL_FONT = FONT.replace('12px', '11px')

/** What goes on itself; the other kinds are waits. */
const WORK = new Set(['step', 'iterations', 'task'])

/** A timeline as it is drawn: `since` and `until` are the range on screen, in ms, which may be another than that read. */
export interface Drawing {
  /** Of all rows those from `first` on. */
  rows: readonly TimelineRow[]
  first: number
  /** Of the step runs of all rows; null: it is not drawn. */
  runs: readonly Activity[] | null
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
  /** What became of what steps did. */
  undoing: ReadonlyMap<string, Undoing>
  /** The time of the position that is looked at. */
  at: number | null
  /** What is being chosen with the pointer, in pixels. */
  brush: readonly [number, number] | null
}

/** How high what stands above the rows is. */
export const headOf = (runs: unknown): number => AXIS_HEIGHT + (runs === null ? 0 : LANE_HEIGHT)

/** What a row is called: a step by its name, a compensation by what it undoes, a task by its own, a wait by its word. */
export const rowName = ({ kind, step, task }: TimelineRow): string =>
  kind === 'step' ? stepName(step) : kind === 'task' ? task || 'task' : task ? `${kind} ${task}` : kind

function stepName(step: string): string {
  const undone = undoneBy(step)
  return undone === null ? step : `undo ${undone}`
}

export function draw(context: CanvasRenderingContext2D, drawing: Drawing, colours: Colours, clock: (ms: number) => string): void {
  const { labelWidth, width, height, top, rows, first, runs } = drawing
  const head = headOf(runs)
  context.font = FONT
  context.textBaseline = 'middle'
  clipped(context, labelWidth, 0, width - labelWidth, height, () => {
    idle(context, drawing, colours)
    axis(context, drawing, colours, clock)
  })
  if (runs !== null) lane(context, drawing, runs, colours)
  clipped(context, 0, head, width, height - head, () => {
    for (let index = Math.max(first, Math.floor(top / ROW_HEIGHT)); index < first + rows.length; index++) {
      const row = rows[index - first]
      const y = head + index * ROW_HEIGHT - top
      if (row === undefined || y > height) break
      if (index === drawing.chosen) filled(context, colours.chosen, 0, y, labelWidth, ROW_HEIGHT)
      const undoing = row.kind === 'step' ? drawing.undoing.get(row.step) : undefined
      if (undoing) undone(context, labelWidth - 15, y + ROW_HEIGHT / 2, undoing.status, colours)
      label(context, row, y, undoing ? labelWidth - 18 : labelWidth, colours)
      clipped(context, labelWidth, head, width - labelWidth, height - head, () => {
        if (row.spans) spans(context, drawing, row, y, colours)
        else activity(context, drawing, row.activity ?? [], WORK.has(row.kind) ? 0.85 : 0.55, y + 2, ROW_HEIGHT - 4, (status) => colourIn(row, status, colours))
      })
    }
  })
  marks(context, drawing, colours)
}

function clipped(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, inside: () => void): void {
  context.save()
  context.beginPath()
  context.rect(x, y, width, height)
  context.clip()
  inside()
  context.restore()
}

function filled(context: CanvasRenderingContext2D, colour: string, x: number, y: number, width: number, height: number): void {
  context.fillStyle = colour
  context.fillRect(x, y, width, height)
}

/** The mark of what is undone, as in the graph. */
function undone(context: CanvasRenderingContext2D, x: number, y: number, status: Undoing['status'], colours: Colours): void {
  const circle = new Path2D()
  circle.arc(x, y, 7, 0, 2 * Math.PI)
  const isOver = status === 'done' || status === 'failed'
  context.fillStyle = context.strokeStyle = colourOf(status, colours)
  if (isOver) context.fill(circle)
  else context.stroke(circle)
  if (isOver) context.fillStyle = colours.page
  context.fill(new Path2D(signOf(status, x, y)))
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
  const { stretches, base, labelWidth, until, width: right } = drawing
  const thin = row.kind === 'step' ? 4 : 7
  const drawn = (row.spans ?? []).map((span) => {
    const from = base + span.offset_ms
    const to = span.ms === null ? until : from + span.ms
    const x = labelWidth + xOf(stretches, from)
    return { x, wide: Math.max(2, labelWidth + xOf(stretches, to) - x), status: span.status, words: `${duration((to - from) / 1000)}${span.ms === null ? '…' : ''}` }
  })
  context.font = SMALL_FONT
  let taken = labelWidth
  drawn.forEach(({ x, wide, status, words }, index) => {
    context.globalAlpha = WORK.has(row.kind) ? 1 : 0.55
    filled(context, colourIn(row, status, colours), x, y + thin, wide, ROW_HEIGHT - 2 * thin)
    context.globalAlpha = 1
    const long = context.measureText(words).width
    const place = placeOfWords(long, x, wide, taken, drawn[index + 1]?.x ?? right, row.kind === 'step')
    taken = Math.max(taken, x + wide, place === null ? 0 : place.x + long)
    if (place === null) return
    context.fillStyle = place.inside ? colours.page : colours.quiet
    context.fillText(words, place.x, y + ROW_HEIGHT / 2 + 0.5)
  })
  context.font = FONT
}

/** How many were going on, as heights: the most, which it returns, are as high as there is room. */
function activity(
  context: CanvasRenderingContext2D,
  { stretches, base, columnMs, labelWidth }: Drawing,
  counts: readonly Activity[],
  alpha: number,
  top: number,
  room: number,
  colour: (status: string) => string,
): number {
  const { most, bars } = stacked(counts)
  context.globalAlpha = alpha
  for (const { status, first, wide, low, count } of bars) {
    const x = Math.round(labelWidth + xOf(stretches, base + first * columnMs))
    const end = Math.round(labelWidth + xOf(stretches, base + (first + wide) * columnMs))
    const high = Math.max(1.5, (count / most) * room)
    filled(context, colour(status), x, top + room - (low / most) * room - high, Math.max(1, end - x), high)
  }
  context.globalAlpha = 1
  return most
}

/** All step runs in one line, whatever rows are on screen. */
function lane(context: CanvasRenderingContext2D, drawing: Drawing, runs: readonly Activity[], colours: Colours): void {
  const { labelWidth, width } = drawing
  const middle = AXIS_HEIGHT + LANE_HEIGHT / 2
  let most = 0
  clipped(context, labelWidth, AXIS_HEIGHT, width - labelWidth, LANE_HEIGHT, () => {
    most = activity(context, drawing, runs, 0.85, AXIS_HEIGHT + 3, LANE_HEIGHT - 6, (status) => colourOf(status, colours))
  })
  context.fillStyle = colours.text
  context.fillText('All', 8, middle)
  context.fillStyle = colours.quiet
  context.textAlign = 'right'
  context.fillText(`up to ${most.toLocaleString('en')}${labelWidth < 150 ? '' : ' a column'}`, labelWidth - 8, middle)
  context.textAlign = 'left'
  filled(context, colours.line, 0, AXIS_HEIGHT + LANE_HEIGHT - 1, width, 1)
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
