// The sections of what was checked and what went in: verification, regression, inputs.

function verifySection() {
  const verification = data.verification;
  if (!verification) return null;
  const layerOf = id => {
    const found = /^(?:layer|cache)\.(\d+)\./.exec(id);
    return found ? found[1] : id.startsWith('mtp.') ? 'MTP' : '-';
  };
  const columns = [...new Set(verification.worst.map(op => layerOf(op[0])))].sort(
      (a, b) => (a === '-') - (b === '-') || (a === 'MTP') - (b === 'MTP') || a - b);
  const names = [...new Set(verification.worst.map(op => op[1]))];
  const cells = new Map(verification.worst.map(op => [op[1] + ' ' + layerOf(op[0]), op]));
  const color = op => ({diverged: css('--bad'), undecided: css('--warn'), missing: css('--warn')})[baseStatus(op[2])] ||
      shade(.12 + .88 * Math.min(1, op[3] || 0));
  return el(
      'div', {},
      el('p', {class: 'what'},
         `${
             fileName(
                 verification
                     .file)}: each op recomputed from the dump's own inputs. The map shows the largest share of its bound that an element needs, the worst of all cases; red diverged, amber was not decided.`),
      el('p', {},
         el('span', {
           class: 'status ' +
               (verification.verdict === 'pass' ? 'pass' :
                                                  's-' + (verification.verdict === 'fail' ? 'diverged' : 'undecided'))
         },
            verification.verdict.toUpperCase()),
         ` profile ${verification.profile}. `, verification.first ? 'First divergence: ' + verification.first : null),
      heatMap({
        label: 'bound use by op and layer',
        rows: names,
        columns: columns.map(column => column === '-' ? 'none' : column),
        value: (r, c) => cells.get(names[r] + ' ' + columns[c]) || null,
        color,
        read: (r, c) => {
          const op = cells.get(names[r] + ' ' + columns[c]);
          return op ? `${op[0]}: ${op[2]}, bound use ${digits(op[3], 2)}` : `no ${names[r]} there`;
        }
      }),
      scaleLegend('0: the reference\'s bits', '1: all of the bound'),
      verification.notes.map(note => el('p', {class: 'count'}, note)), makeTable({
        id: 'verify-table',
        rows: verification.ops,
        filter: true,
        most: 25,
        sort: [3, true],
        columns: [
          {title: 'case', text: true, get: op => op[0]},
          {title: 'op', text: true, get: op => op[1], show: op => el('span', {class: 'mono'}, op[1])},
          {title: 'status', text: true, get: op => op[2], show: op => statusBadge(op[2])},
          {title: 'of bound', get: op => op[3], show: op => digits(op[3], 2)},
          {title: 'steps', unit: 'ulp', get: op => op[4], show: op => digits(op[4], 2)}, {
            title: 'cosine',
            unit: 'free-running',
            get: op => op[5],
            show: op => op[5] === null ? '-' : op[5].toFixed(6)
          },
          {title: 'remark', text: true, wrap: true, get: op => op[6]}
        ]
      }));
}

function regressionSection() {
  const regression = data.regression;
  if (!regression) return null;
  return el(
      'div', {},
      el('p', {class: 'what'},
         `${
             regression
                 .compared} records of the baseline have a partner here. A change counts when it is over 1 % and over ${
             digits(
                 regression.sigmas,
                 2)} standard errors of the difference, from p10, p90 and repetitions: one false alarm in a hundred such reports. Drift of a whole machine between two runs is not noise of this kind.`),
      el('p', {}, el('b', {class: regression.slower ? 'slow' : null}, `${regression.slower} slower`), ', ',
         el('b', {class: regression.faster ? 'fast' : null}, `${regression.faster} faster`),
         `, ${regression.same} the same, ${regression.unclear} unclear (no noise known); ${
             regression.only_new} only here, ${regression.only_old} only in the baseline.`),
      makeTable({
        id: 'regression-table',
        rows: regression.ops,
        filter: true,
        most: 40,
        columns: [
          {title: 'op', text: true, get: op => op[0], show: op => el('span', {class: 'mono'}, op[0])},
          {title: 'source', text: true, get: op => op[1]}, {title: 'device', text: true, get: op => op[2]},
          {title: 'phase', text: true, get: op => op[3]}, {title: 'rank', get: op => op[4], show: op => String(op[4])},
          {title: 'before', unit: 'us', get: op => op[5]}, {title: 'now', unit: 'us', get: op => op[6]},
          {title: 'change', unit: '%', get: op => op[5] > 0 ? 100 * (op[6] / op[5] - 1) : null},
          {title: 'noise', unit: 'us', get: op => op[7], show: op => op[7] > 0 ? digits(op[7], 2) : '-'}, {
            title: 'verdict',
            text: true,
            get: op => op[8],
            show: op => el('span', {class: {slower: 'slow', faster: 'fast'}[op[8]]}, op[8])
          }
        ]
      }));
}

function inputsSection(scenario) {
  const figures = ['memory_gb_per_s', 'bf16_tflops', 'fp8_tflops', 'nvlink_gb_per_s', 'nic_gb_per_s'].filter(
      name => scenario.hardware[name]);
  return el(
      'div', {},
      data.notices.map(notice => el('div', {class: 'notice' + (notice.warning ? ' warning' : '')}, notice.text)),
      el('h3', {}, 'Series of this scenario'), makeTable({
        rows: scenario.series,
        columns: [
          {title: 'series', text: true, get: row => row.title}, {title: 'source', text: true, get: row => row.source},
          {title: 'clock', text: true, get: row => row.clock === 'gpu' ? 'GPU' : 'CPU: not comparable to a GPU'},
          {title: 'step', get: row => row.total, show: row => timeText(row.total)},
          {title: 'from', text: true, wrap: true, get: row => row.origin}
        ]
      }),
      el('h3', {}, `Figures of ${scenario.hardware.title}`), makeTable({
        rows: figures,
        columns: [
          {title: 'figure', text: true, get: name => name},
          {title: 'value', get: name => scenario.hardware[name].value},
          {title: 'source', text: true, wrap: true, get: name => scenario.hardware[name].source}
        ]
      }),
      el('h3', {}, 'Files'), el('ul', {class: 'inputs'}, data.inputs.map(line => el('li', {}, line))),
      el('p', {class: 'count'}, `config ${scenario.hash}; page written by dsv3 ${data.commit}`));
}
