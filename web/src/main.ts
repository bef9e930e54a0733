import { mount } from 'svelte'
import App from './App.svelte'
import { signInFromAddress } from './api/session'

const target = document.getElementById('page')
if (target === null) throw new Error('index.html has no #page')
const signingIn = signInFromAddress()
mount(App, { target, props: { signingIn } })
