import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { yaml } from '@codemirror/lang-yaml'
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, lintKeymap, setDiagnostics } from '@codemirror/lint'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { EditorState, type Extension } from '@codemirror/state'
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import type { Diagnostic } from 'noetl-stream-client'
import { completion } from './complete'
import { outlineOf, pathTo } from './outline'
import { rangeOf } from './places'
import { aboutKey, type Schema } from './schema'

export interface Wanted {
  text: string
  label: string
  /** The schema of playbooks, once it is known. */
  schema: () => Schema | null
  changed: (text: string) => void
}

/** An editor on the screen. */
export interface Shown {
  diagnose(diagnostics: readonly Diagnostic[]): void
  /** Changes a part of the text, as if it were typed: it can be undone. */
  edit(change: { from: number; to: number; insert: string }): void
  goTo(place: Pick<Diagnostic, 'line' | 'column'>): void
  destroy(): void
}

/**
 * An editor below `host`, in a shadow tree: there its styles are constructed sheets, which the Content-Security-Policy
 * allows, where in the document they would be inline.
 */
export function editorIn(host: HTMLElement, wanted: Wanted): Shown {
  const root = host.attachShadow({ mode: 'open' })
  const state = EditorState.create({ doc: wanted.text, extensions: extensions(wanted) })
  const view = new EditorView({ state, parent: root, root })
  const text = (): string => view.state.doc.toString()
  return {
    diagnose: (diagnostics) => {
      const marks = diagnostics.map((one) => ({ ...rangeOf(text(), one), severity: one.severity, message: wordsOf(one) }))
      view.dispatch(setDiagnostics(view.state, marks))
    },
    edit: (change) => view.dispatch({ changes: change, effects: EditorView.scrollIntoView(change.from, { y: 'center' }) }),
    goTo: (place) => {
      const { from, to } = rangeOf(text(), place)
      view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: 'center' }) })
      view.focus()
    },
    destroy: () => view.destroy(),
  }
}

const wordsOf = ({ message, hint }: Diagnostic): string => (hint ? `${message}\n${hint}` : message)

function extensions(wanted: Wanted): Extension[] {
  return [
    lineNumbers(),
    foldGutter(),
    lintGutter(),
    history(),
    drawSelection(),
    indentOnInput(),
    bracketMatching(),
    closeBrackets(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    search({ top: true }),
    yaml(),
    syntaxHighlighting(COLOURS),
    autocompletion({ override: [(context) => offered(context, wanted.schema())], icons: false }),
    hoverTooltip((view, offset) => described(view, offset, wanted.schema())),
    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap]),
    EditorView.contentAttributes.of({ 'aria-label': wanted.label, tabindex: '0' }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) wanted.changed(update.state.doc.toString())
    }),
    LOOK,
  ]
}

function offered(context: CompletionContext, schema: Schema | null) {
  const found = completion(schema, context.state.doc.toString(), context.pos)
  const begun = found !== null && (context.pos > found.from || context.state.sliceDoc(found.from - 1, found.from) === '.')
  if (found === null || (!context.explicit && !begun)) return null
  return {
    from: found.from,
    options: found.options.map(({ label, detail, kind, adds }) => ({
      label,
      apply: label + adds,
      type: kind,
      ...(kind !== 'key' ? { detail } : detail ? { info: detail } : {}),
    })),
    validFor: /^[\w-]*$/,
  }
}

function described(view: EditorView, offset: number, schema: Schema | null) {
  if (schema === null) return null
  const outline = outlineOf(view.state.doc.toString())
  const { path, at } = pathTo(outline, offset)
  const lines = at === 'key' ? aboutKey(schema, outline, path) : []
  if (lines.length === 0) return null
  return {
    pos: offset,
    create: () => {
      const dom = document.createElement('div')
      dom.className = 'cm-about'
      for (const line of [path.at(-1) ?? '', ...lines]) {
        const row = dom.appendChild(document.createElement('div'))
        row.textContent = String(line)
      }
      return { dom }
    },
  }
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: tags.comment, color: 'var(--quiet)', fontStyle: 'italic' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.meta, tags.labelName, tags.typeName], color: 'var(--warn)' },
])

const LOOK = EditorView.theme({
  '&': { height: '100%', color: 'var(--text)', backgroundColor: 'var(--page)', fontSize: '12px' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '18px' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--raised)', color: 'var(--quiet)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '.cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': { background: 'var(--chosen)' },
  '.cm-selectionMatch, .cm-searchMatch': { backgroundColor: 'var(--chosen)' },
  '.cm-matchingBracket, &.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--chosen)', outline: '1px solid var(--edge)' },
  '.cm-tooltip, .cm-panels': { color: 'var(--text)', backgroundColor: 'var(--raised)', border: '1px solid var(--edge)', borderRadius: '5px' },
  '.cm-tooltip': { maxWidth: 'min(480px, 90vw)' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', maxWidth: 'min(420px, 80vw)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { color: 'var(--text)', background: 'var(--chosen)' },
  '.cm-completionDetail': { color: 'var(--quiet)', fontStyle: 'normal' },
  '.cm-completionInfo': { padding: '8px' },
  '.cm-diagnostic': { whiteSpace: 'pre-wrap', padding: '6px 8px' },
  '.cm-diagnostic-error': { borderLeft: '3px solid var(--bad)' },
  '.cm-diagnostic-warning': { borderLeft: '3px solid var(--warn)' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--bad)' },
  '.cm-lintRange-warning': { backgroundImage: 'none', textDecoration: 'underline wavy var(--warn)' },
  '.cm-about': { padding: '8px', font: '12px/18px var(--sans)' },
  '.cm-about > :first-child': { fontFamily: 'var(--mono)', fontWeight: '600' },
  '.cm-textfield, .cm-button': { color: 'var(--text)', background: 'var(--page)', border: '1px solid var(--edge)', borderRadius: '4px' },
  '.cm-foldPlaceholder': { color: 'var(--quiet)', background: 'var(--raised)', border: '1px solid var(--edge)' },
})
