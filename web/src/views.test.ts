import { expect, test } from 'vitest'
import { addressOf, viewAt, type View } from './views'

const VIEWS: [string, View][] = [
  ['/', { screen: 'executions', query: '' }],
  ['/?q=status%3Afailed+path%3Aa%26b', { screen: 'executions', query: 'status:failed path:a&b' }],
  ['/executions/01a2', { screen: 'execution', id: '01a2', tab: 'steps' }],
  ['/executions/01a2/events', { screen: 'execution', id: '01a2', tab: 'events' }],
  [
    '/executions/01a2/events?at=12&step=a+b',
    { screen: 'execution', id: '01a2', tab: 'events', chosen: { at: '12', step: 'a b' } },
  ],
  ['/executions/01a2/diff/01b3', { screen: 'diff', a: '01a2', b: '01b3', all: false }],
  ['/executions/01a2/diff/01b3?rows=all', { screen: 'diff', a: '01a2', b: '01b3', all: true }],
  ['/playbooks', { screen: 'playbooks' }],
  ['/playbooks?q=nightly+team%3Dsales', { screen: 'playbooks', words: 'nightly team=sales' }],
  ['/playbooks/team%2Freport?version=1.0', { screen: 'playbook', path: 'team/report', version: '1.0' }],
  ['/playbooks/team%2Freport/edit', { screen: 'playbook', path: 'team/report', version: null, tab: 'edit' }],
  [
    '/playbooks/a/changes?version=2&before=1',
    { screen: 'playbook', path: 'a', version: '2', tab: 'changes', before: '1' },
  ],
  ['/playbooks/a/statistics?since=30d', { screen: 'playbook', path: 'a', version: null, tab: 'statistics', since: '30d' }],
  ['/playbooks?new=1', { screen: 'new-playbook' }],
  ['/playbooks?new=Trigger', { screen: 'new-playbook', kind: 'Trigger' }],
  ['/schedules', { screen: 'schedules' }],
  ['/schedules?open=team%2Fnightly', { screen: 'schedules', open: 'team/nightly' }],
  ['/triggers', { screen: 'triggers' }],
  [
    '/triggers?prefix=team%2F&open=team%2Fpush&status=ignored&event=7',
    { screen: 'triggers', prefix: 'team/', open: 'team/push', status: 'ignored', event: '7' },
  ],
  ['/system', { screen: 'system', part: 'health' }],
  ['/system/pools', { screen: 'system', part: 'pools' }],
  ['/system/dead-letters?open=events-12', { screen: 'system', part: 'dead-letters', choice: { open: 'events-12' } }],
  [
    '/system/audit?operation=readCredential&refused=true',
    { screen: 'system', part: 'audit', choice: { operation: 'readCredential', refused: 'true' } },
  ],
]

test.each(VIEWS)('%s is an address, and the address of its view', (text, view) => {
  const { pathname, search } = new URL(text, 'http://x')
  expect(viewAt(pathname, search)).toEqual(view)
  expect(addressOf(view)).toBe(text)
})

test.each(['/executions/a/nonsense', '/system/nonsense', '/nonsense', '/playbooks/a/nonsense', '/schedules/a', '/playbooks/a/edit/b', '/executions/a/events/b', '/executions/a/diff', '/executions/a/diff/b/c'])('%s is missing', (path) => {
  expect(viewAt(path, '')).toEqual({ screen: 'missing' })
})

test('what is no encoding stays as it is', () => {
  expect(viewAt('/executions/%zz', '')).toMatchObject({ id: '%zz' })
})

test('a grouped list has an address of its own', () => {
  const view = { screen: 'executions', query: 'status:failed', group: 'label:team' } as const
  expect(addressOf(view)).toBe('/?q=status%3Afailed&group=label%3Ateam')
  expect(viewAt('/', '?q=status%3Afailed&group=label%3Ateam')).toEqual(view)
})
