import type { Diagnostic, StepNode } from 'noetl-stream-client'

/** What is wrong with steps: the worst of each, and all in words. */
export interface Problems {
  steps: Map<string, Diagnostic['severity']>
  words: Map<string, string[]>
}

/** The problems by step: those in the lines from where it begins to the next one, as far as they are of the workflow. */
export function problemsOf(nodes: readonly Pick<StepNode, 'step' | 'line'>[], diagnostics: readonly Diagnostic[]): Problems {
  const found: Problems = { steps: new Map(), words: new Map() }
  const ordered = [...nodes].sort((a, b) => a.line - b.line)
  for (const { severity, message, line, pointer } of diagnostics) {
    const step = pointer.startsWith('/workflow') ? ordered.findLast((one) => one.line <= line)?.step : undefined
    if (step === undefined) continue
    if (severity === 'error' || !found.steps.has(step)) found.steps.set(step, severity)
    found.words.set(step, [...(found.words.get(step) ?? []), `${severity}: ${message}`])
  }
  return found
}
