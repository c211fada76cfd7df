// State, wiring and the order of the sections.

const data = JSON.parse(document.getElementById('data').textContent);
const redraws = [];  // called when the width or the colours change
const state = {
  scenario: 0,
  series: 0
};

const kSections = [
  ['summary', 'Summary', summarySection],
  ['journey', 'One token', journeySection],
  ['timeline', 'Timeline', timelineSection],
  ['ops', 'Ops', opsSection],
  ['roofline', 'Roofline', rooflineSection],
  ['layers', 'Layers', layersSection],
  ['skew', 'Ranks and skew', skewSection],
  ['matrix', 'All-to-all', matrixSection],
  ['pareto', 'Layouts', paretoSection],
  ['verify', 'Verification', verifySection],
  ['memory', 'Memory', memorySection],
  ['regression', 'Regression', regressionSection],
  ['inputs', 'Inputs', inputsSection],
];

function draw() {
  redraws.length = 0;
  const scenario = data.scenarios[state.scenario];
  const links = [], sections = [];
  for (const [id, title, make] of kSections) {
    const content = make(scenario);
    if (!content) continue;
    const isLong = id === 'ops' || id === 'verify' || id === 'layers';
    sections.push(
        el('section', {id, 'aria-label': title, class: isLong ? 'long' : null},
           id === 'summary' ? null : el('h2', {}, title), content));
    links.push(el('a', {href: '#' + id}, title));
  }
  document.getElementById('main').replaceChildren(...sections);
  document.getElementById('nav').replaceChildren(...links);
  document.title = 'dsv3 report: ' + scenario.title;
}

function chooseScenario(index) {
  state.scenario = index;
  state.series = data.scenarios[index].main;
  const buttons = [...document.getElementById('scenarios').children];
  buttons.forEach((button, i) => {
    button.setAttribute('aria-checked', String(i === index));
    button.tabIndex = i === index ? 0 : -1;
  });
  draw();
}

function start() {
  const box = document.getElementById('scenarios');
  data.scenarios.forEach((scenario, i) => {
    const [name, ...rest] = scenario.title.split(', ');
    box.append(
        el('button', {type: 'button', role: 'radio', 'aria-checked': 'false', onclick: () => chooseScenario(i)}, name,
           el('small', {}, rest.join(', '))));
  });
  box.onkeydown = event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (state.scenario + step + data.scenarios.length) % data.scenarios.length;
    chooseScenario(next);
    box.children[next].focus();
  };
  const root = document.documentElement;
  const wantsDark = window.matchMedia('(prefers-color-scheme: dark)');
  const setTheme = isDark => {
    root.dataset.theme = isDark ? 'dark' : 'light';
  };
  setTheme(wantsDark.matches);
  wantsDark.addEventListener('change', () => {
    setTheme(wantsDark.matches);
    redraw();
  });
  document.getElementById('theme').onclick = () => {
    setTheme(root.dataset.theme !== 'dark');
    redraw();
  };
  let timer = 0;
  window.addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(redraw, 120);
  });
  window.addEventListener('beforeprint', () => {
    setTheme(false);
    for (const details of document.querySelectorAll('details')) details.open = true;
    redraw();
  });
  chooseScenario(0);
}

function redraw() {
  for (const again of redraws) again();
}

start();
