import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

/** The source of the client: a build takes nothing but what the lock of npm has, and what is here. */
const CLIENT = decodeURIComponent(new URL('../clients/typescript/src/index.ts', import.meta.url).pathname)

// The page is built into the Python package. Nothing is inlined: the Content-Security-Policy allows files alone.
export default defineConfig({
  plugins: [svelte()],
  resolve: { alias: { 'noetl-stream-client': CLIENT } },
  base: '/',
  build: {
    outDir: '../src/noetl_stream/gateway/page',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    target: 'es2023',
  },
  worker: { format: 'es' },
  server: { proxy: { '/api': 'http://127.0.0.1:8080' }, fs: { allow: ['..'] } },
})
