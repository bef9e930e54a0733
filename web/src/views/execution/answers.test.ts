import { expect, test } from 'vitest'
import type { ExpectedValue, Reason } from 'noetl-stream-client'
import { answersOf, ctxField } from './answers'
import { payloadFields } from './payload'

const moving = (value: unknown, to: string[] = []): ExpectedValue => ({ value, moves: true, to })
const labels = (key: string, ...values: ExpectedValue[]): string[] => answersOf([{ key, values }]).map((one) => one.label)

test('a yes or no is approved or rejected', () => {
  expect(labels('approved', moving(true), moving(false))).toEqual(['Approve', 'Reject'])
  expect(labels('manager_approved', moving(true), moving(false))).toEqual(['Approve', 'Reject'])
  expect(labels('rejected', moving(true), moving(false))).toEqual(['Reject', 'Approve'])
  expect(labels('go', moving(true), moving(false))).toEqual(['Set go to true', 'Set go to false'])
})

test('a text is the verb that it is a form of, or what is set', () => {
  expect(labels('decision', moving('approved'), moving('refused'))).toEqual(['Approve', 'Refuse'])
  expect(labels('decision', moving('later'), moving(3))).toEqual(['Set decision to later', 'Set decision to 3'])
  expect(labels('votes', moving('3'), moving(3))).toEqual(['Set votes to "3"', 'Set votes to 3'])
})

test('two keys are told apart', () => {
  const approved = ['legal_approved', 'ops_approved'].map((key) => ({ key, values: [moving(true)] }))
  expect(answersOf(approved).map((one) => one.label)).toEqual(['Set legal_approved to true', 'Set ops_approved to true'])
})

test('a key inside another has its verb, or is named with what it is in', () => {
  const inside = (path: string[], ...values: ExpectedValue[]) => ({ key: path.join('.'), path, values })
  const order = inside(['order', 'approved'], moving(true), moving(false))
  expect(answersOf([order]).map((one) => one.label)).toEqual(['Approve', 'Reject'])
  const both = answersOf([order, inside(['mail', 'approved'], moving(true))])
  expect(both.map((one) => one.label)).toEqual(['Set order.approved to true', 'Reject', 'Set mail.approved to true'])
  expect(both[2]?.path).toEqual(['mail', 'approved'])
})

test('an answer says what follows', () => {
  const [yes, no] = answersOf([{ key: 'accepted', values: [moving(true, ['order', 'mail']), { value: false, moves: false }] }])
  expect(yes?.leads).toBe('goes on to order, mail')
  expect(no?.leads).toBe('it goes on waiting')
})

test('a key of ctx is typed as its value, or else as the values that guards compare it with', () => {
  const reasons = [{ waiting_on: { expects: [{ key: 'votes', values: [moving(3)] }] } }] as Reason[]
  expect(ctxField('votes', {}, reasons)).toMatchObject({ kind: 'number', text: '', choices: ['3'] })
  expect(ctxField('votes', { votes: 'many' }, reasons)).toMatchObject({ kind: 'text', text: 'many' })
  expect(ctxField('other', {}, reasons)).toMatchObject({ kind: 'text', text: '', choices: [] })
  expect(ctxField('constructor', {}, reasons)).toMatchObject({ text: '' })
})

test('a payload has the fields of its schema', () => {
  const schema = {
    type: 'object',
    required: ['go'],
    properties: { go: { type: 'boolean' }, by: { enum: ['ada', 'bob'], description: 'Who says it.' }, at: { type: 'integer', default: 4 }, any: true },
  }
  expect(payloadFields({ schema })).toMatchObject([
    { key: 'go', kind: 'yes or no', empty: 'wrong' },
    { key: 'by', kind: 'text', choices: ['ada', 'bob'], isClosed: true, note: 'Who says it.', empty: 'left out' },
    { key: 'at', kind: 'number', text: '4' },
    { key: 'any', kind: 'JSON' },
  ])
})

test('without a schema it has those that templates read', () => {
  const expects = [{ key: 'go', values: [{ value: true }, { value: false }] }, { key: 'by', values: [] }]
  expect(payloadFields({ expects })).toMatchObject([
    { key: 'go', kind: 'yes or no', empty: 'wrong' },
    { key: 'by', kind: 'text', empty: 'wrong' },
  ])
  expect(payloadFields({})).toEqual([])
})
