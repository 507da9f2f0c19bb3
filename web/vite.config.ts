import { defineConfig } from "vitest/config";

// The build is part of the Python package, beside the routes that serve it.
export default defineConfig({
  base: "/",
  build: {
    outDir: "../src/nearcast/server/http/web",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content policy has no data: for fonts and scripts
    modulePreload: { polyfill: false },
    sourcemap: false,
    chunkSizeWarningLimit: 1500,
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  worker: { format: "es" }, // MapLibre starts it as a module
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
