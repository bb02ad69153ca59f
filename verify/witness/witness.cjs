'use strict';

// Watches a Node process that runs tests, from inside. It is loaded before anything else, writes one line to RECORD for
// each event, and compares the functions that decide about tests when the process ends. See sitecustomize.py.

(() => {
  const fs = require('fs');
  const path = require('path');
  const thread = (() => {
    try {
      return require('worker_threads').threadId;
    } catch {
      return 0;
    }
  })();
  const { appendFileSync } = fs;
  const { pid } = process;
  const ownKeys = Reflect.ownKeys;
  const describe = Object.getOwnPropertyDescriptor;

  // Runners, and the processes in which they run the tests.
  const program = process.argv[1] ? path.basename(process.argv[1]) : '';
  const runner = /^_?(jest|mocha|vitest|tap|ava|jasmine|karma|uvu|tape|react-scripts)(\.[cm]?js)?$/.test(program);
  const worker = /jest-worker|tinypool|vitest.*(worker|fork)/.test(process.argv[1] || '') || thread > 0;
  const child = process.env.NODE_TEST_CONTEXT !== undefined;
  const itself = process.execArgv.includes('--test');
  if (!child && !itself && !runner && !worker) {
    return;
  }
  const name = itself ? 'node --test' : child ? 'node --test FILE' : program;
  const say = (event, text) => {
    const line = [event, `${pid}.${thread}`, `${pid}.${thread}`, text].join('\t').replace(/[\r\n]/g, ' ');
    appendFileSync(RECORD, line + '\n');
  };

  const assert = require('assert');
  const Module = require('module');
  const objects = {
    assert, 'assert.strict': assert.strict, 'assert.AssertionError.prototype': assert.AssertionError.prototype,
    Module, process, JSON, Reflect, Object, Number, String, Array, Math, Promise,
  };
  const ends = ['exit', 'reallyExit', 'abort', 'kill']; // libraries replace others, such as cwd
  for (const type of [Object, Function, Array, Number, String, Boolean, Map, Set, Promise, Error, RegExp, Date, Symbol]) {
    objects[`${type.name}.prototype`] = type.prototype;
  }
  const before = {};
  for (const [title, object] of Object.entries(objects)) {
    before[title] = new Map();
    for (const key of ownKeys(object)) {
      const d = describe(object, key);
      if ((typeof d.value === 'function' || d.get) && (object !== process || ends.includes(key))) {
        before[title].set(key, d.value || d.get);
      }
    }
  }
  say(worker ? 'worker' : 'started', name); // workers are ended by their runner
  const changed = () => {
    const found = [];
    for (const title in before) {
      for (const [key, value] of before[title]) {
        const d = describe(objects[title], key);
        if (!d || (d.value || d.get) !== value) {
          found.push(`${title}.${String(key)} was replaced`);
        }
      }
    }
    return found;
  };
  process.on('exit', () => {
    for (const text of changed().slice(0, 50)) {
      say('changed', text);
    }
    say('ended', name);
  });
})();
