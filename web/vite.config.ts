import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// The page is built into the Python package. Nothing is inlined: the Content-Security-Policy allows files alone.
export default defineConfig({
  plugins: [svelte()],
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
  server: { proxy: { '/api': 'http://127.0.0.1:8080' } },
})
