// Does the scenarios of clients in TypeScript: node scenarios.mjs INDEX_JS < JSON of { url, token, scenarios }.
// Prints, as JSON, by scenario what went wrong; null: nothing.

import assert from 'node:assert/strict'
import { text } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'

const library = await import(pathToFileURL(process.argv[2]).href)
const { url, token, scenarios } = JSON.parse(await text(process.stdin))

const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())

async function called(target, name, given) {
  if (name === 'download') {
    const pieces = []
    await target.download({ ...given, write: (piece) => pieces.push(piece) })
    return Buffer.concat(pieces).toString()
  }
  const found = target[camel(name)](given)
  return found[Symbol.asyncIterator] ? await collected(found) : await found
}

async function collected(items) {
  const found = []
  for await (const one of items) found.push(one)
  return found
}

/** The part is in what was found, at any depth. */
function has(found, part) {
  if (Array.isArray(part)) {
    assert.equal(found.length, part.length)
    part.forEach((one, place) => has(found[place], one))
  } else if (typeof part === 'object' && part !== null) {
    for (const [key, value] of Object.entries(part)) has(found[key], value)
  } else assert.equal(found, part)
}

class Scenario {
  named = {}
  client = new library.Client(url, { token })

  /** The value with the ids of what earlier steps have named. */
  filled(value) {
    if (typeof value === 'string' && value.startsWith('$')) {
      const [name, attribute] = value.slice(1).split('.')
      return this.named[name][attribute]
    }
    if (Array.isArray(value)) return value.map((one) => this.filled(one))
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, this.filled(one)]))
  }

  target(step) {
    if (step.on !== undefined) return this.named[step.on]
    const { token: other, as_token: made } = step.client ?? {}
    const given = made === undefined ? other : this.named[made].secret
    return given === undefined ? this.client : new library.Client(url, { token: given })
  }

  async do(steps) {
    for (const step of steps) {
      try {
        await this.step(step)
      } catch (error) {
        error.message = `${error.message}\nin ${JSON.stringify(step)}`
        throw error
      }
    }
  }

  async step(step) {
    if (step.same !== undefined) {
      assert.equal(new Set(step.same.map((one) => this.filled(one))).size, 1)
      return
    }
    const given = this.filled(step.with ?? {})
    if (step.raises !== undefined) {
      await assert.rejects(called(this.target(step), step.call, given), (error) => {
        assert.ok(error instanceof library[step.raises], `${error.name}: ${error.message}`)
        for (const word of step.says ?? []) assert.ok(error.message.includes(word), error.message)
        return true
      })
      return
    }
    const found = await (step.each === undefined ? called(this.target(step), step.call, given) : this.read(step, given))
    if (step.as !== undefined) this.named[step.as] = found
    if (step.gives !== undefined) assert.deepEqual(found, step.gives)
    if (step.has !== undefined) has(found, this.filled(step.has))
    if (step.first !== undefined) has(found[0], step.first)
    if (step.names !== undefined) {
      assert.deepEqual(found.map((one) => one.name).filter((name) => step.names.includes(name)), step.names)
    }
    for (const [key, length] of Object.entries(step.lengths ?? {})) assert.equal(found[key].length, length)
  }

  async read(step, given) {
    const found = []
    for await (const one of this.client.each(camel(step.each), given)) {
      if (found.length === 0) await this.do(step.meanwhile)
      found.push(one)
    }
    return found
  }
}

const outcomes = {}
for (const { name, steps } of scenarios) {
  outcomes[name] = await new Scenario().do(steps).then(
    () => null,
    (error) => error.stack,
  )
}
console.log(JSON.stringify(outcomes))
