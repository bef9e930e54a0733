import { expect, test } from 'vitest'
import { completed, completion, labelsOf } from './completion'

const KNOWN = {
  paths: ['team/nightly', 'team/report', 'old/team'],
  labels: labelsOf([{ labels: { env: 'prod', tier: 1, none: null } }, { labels: { env: 'the lab' } }]),
}
const at = (line: string, caret = line.length): string[] => completion(line, caret, KNOWN).options.map((one) => one.text)

test('an empty line offers the names of filters', () => {
  expect(at('')).toEqual(['status:', 'path:', 'label:', 'key:', 'input:', 'failed-step:', 'worker:', 'error:', 'longer-than:', 'due:', 'since:', 'until:', 'older-than:'])
  expect(at('status:failed ')).toContain('label:')
})

test('a word that is no name is a part of a path', () => {
  expect(at('nigh')).toEqual(['path:team/nightly'])
})

test('values go on from what is there: another status, a path that begins so before one that has it inside', () => {
  expect(at('status:failed,c')).toEqual(['status:failed,compensating', 'status:failed,completed', 'status:failed,cancelled'])
  expect(at('path:team')).toEqual(['path:team/nightly', 'path:team/report', 'path:old/team'])
  expect(at('since:2')).toEqual(['since:24h'])
  expect(at('error:tim')).toEqual([])
})

test('labels are completed by name and then by value, quoted where there is a space', () => {
  expect(at('label:')).toEqual(['label:env=', 'label:tier='])
  expect(at('label:env=')).toEqual(['label:env=prod', 'label:"env=the lab"'])
  expect(at('label:"env=the l')).toEqual(['label:"env=the lab"'])
})

test('only the word at the caret is replaced, and the caret stands behind it', () => {
  const line = 'stat path:a'
  const found = completion(line, 4, KNOWN)
  expect(completed(line, found, 'status:')).toEqual({ line: 'status: path:a', caret: 8 })
  expect(completed('path:te', completion('path:te', 7, KNOWN), 'path:team')).toEqual({ line: 'path:team ', caret: 10 })
})
