// What the tests in a browser ask a page, by name: `SCRIPTS` of `lab_page.py` reads it. A blank line ends a script.

// kernel_is_ready: whether the kernel of the notebook at this path is ready
path => {
    const panel = jupyterapp.shell.currentWidget;
    return panel?.context?.path === path && panel.sessionContext.kernelDisplayStatus === 'idle';
}

// be_idle: call at once what waits for a page with nothing to do; on a busy machine JupyterLab waits 3 s for each cell
window.requestIdleCallback = call => setTimeout(call, 0, {didTimeout: false, timeRemaining: () => 50});

// read_cells: each cell as JupyterLab holds it
() => [...jupyterapp.shell.currentWidget.content.model.cells].map(cell => ({
    source: cell.sharedModel.source,
    code: cell.type === 'code',
    tags: cell.metadata?.tags ?? [],
    count: cell.executionCount ?? null,
    outputs: (cell.sharedModel.outputs ?? []).map(each => each.toJSON?.() ?? each),
}))

// scroll_through: bring every cell into view, one after the other
async () => {
    for (const cell of jupyterapp.shell.currentWidget.content.widgets) {
        cell.node.scrollIntoView();
        await cell.ready;
    }
}

// is_idle: whether nothing runs, and no widget is on its way
() => {
    const panel = jupyterapp.shell.currentWidget;
    return panel.sessionContext.kernelDisplayStatus === 'idle'
        && ![...panel.node.querySelectorAll('.jp-InputPrompt')].some(each => each.textContent === '[*]:')
        && !panel.node.textContent.includes('Loading widget');
}

// shut_down: end the kernel of every open notebook, and close its tab
async () => {
    for (const panel of [...jupyterapp.shell.widgets('main')].filter(each => each.sessionContext)) {
        await panel.sessionContext.shutdown();
        panel.dispose();
    }
}

// time_next_picture: the milliseconds from the next key on a slider to the new picture, or sentence, of its explorer
(handle, patience) => {
    const panel = handle.closest('.jp-OutputArea-output');
    const [picture, words] = ['img, svg[role="img"]', '[role="status"]'].map(
        each => panel.querySelector(each).closest('.widget-html'));
    window.courseMove = new Promise(resolve => {
        let start, loading = false;
        const finish = () => { observer.disconnect(); resolve(performance.now() - start); };
        const observer = new MutationObserver(() => {
            const image = picture.querySelector('img');
            if (loading) return;  // the sentence came before the picture was loaded
            if (!image || image.complete) finish();
            else image.addEventListener('load', finish, {once: true});
            loading = true;
        });
        handle.addEventListener('keydown', () => { start = performance.now(); }, {capture: true, once: true});
        for (const part of [picture, words]) observer.observe(part, {childList: true, subtree: true});
        setTimeout(() => resolve(null), patience);
    });
}

// look_at_slide: its words, where they end, what can only be seen by scrolling, the sizes of its code, its headings
() => {
    const slide = Reveal.getCurrentSlide(), scale = Reveal.getScale();
    const all = [...slide.querySelectorAll('*')].filter(each => !each.closest('aside'));
    const shown = all.filter(each => each.getClientRects().length);
    const boxes = shown.filter(each => !each.closest('svg *, math *')).map(each => each.getBoundingClientRect());
    const code = shown.filter(each => each.matches('pre, code'));
    const sizeOf = each => each.getBoundingClientRect();
    const images = shown.filter(each => each.matches('img')), pictures = images.map(sizeOf);
    const shrunk = pictures[0]?.width < 0.75 * images[0]?.naturalWidth * scale;
    const written = shown.filter(each => each.matches('.jp-Editor')).reduce((sum, each) => sum + sizeOf(each).height, 0);
    const cells = shown.filter(each => each.matches('.jp-Cell:not(:has(.goes-on))')).map(cell => ({
        code: cell.matches('.jp-CodeCell:not(.celltag_why, .celltag_predict)'),
        alone: !cell.querySelector('.jp-Editor') && !cell.matches('.celltag_setup, .celltag_explore'),  // folded code
        continued: !!cell.closest('.continued, section:has(.celltag_found)'),
        height: cell.querySelector('img, svg') ? 0 : cell.getBoundingClientRect().height,
        picture: !!cell.querySelector('img, svg'),
    }));
    return {
        first: cells[0], last: cells[cells.length - 1],
        words: slide.innerText, heading: slide.querySelector('h1, h2, h3, .goes-on')?.innerText ?? '',
        right: Math.max(...boxes.map(each => each.right)), bottom: Math.max(...boxes.map(each => each.bottom)),
        hidden: Math.max(...[slide, ...shown].filter(each => getComputedStyle(each).overflowX !== 'visible')
            .map(each => Math.max(each.scrollHeight - each.clientHeight, each.scrollWidth - each.clientWidth))),
        code: code.map(each => parseFloat(getComputedStyle(each).fontSize) * scale),
        cramped: pictures.length === 1 && written > (shrunk ? 0 : 200 * scale) && pictures[0].width < innerWidth / 2.05 &&
            pictures[0].height < innerHeight / 1.65,
        lone: !slide.matches('.rest:not(:has(.celltag_found))') && !slide.querySelector('h1, h2, h3') && slide.innerText.split(/\s+/).length < 45 &&
            !shown.some(each => each.matches('pre, li, td, img, svg, .predict, details')),
        bare: !shown.some(each => each.matches('p:not(.goes-on), li, td, pre, img, svg, summary')),
        goesOn: slide.querySelectorAll('.goes-on').length, title: slide.querySelectorAll('h1, h2, h3').length,
    };
}

// smallest_text: the smallest size of text on the page, but for formulas, whose indices are small
() => {
    const sizes = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const {parentElement, textContent} = walker.currentNode;
        if (!textContent.trim() || parentElement.closest('math')) continue;
        sizes.push(parseFloat(getComputedStyle(parentElement).fontSize));
    }
    return Math.min(...sizes);
}

// find_faults_of_site: what scrolls sideways, lets the page shine through, or is in the wrong theme
() => {
    const see = each => getComputedStyle(each).backgroundColor.match(/[\d.]+/g).map(Number);
    const found = document.documentElement.scrollWidth > innerWidth ? ['scrolls sideways'] : [];
    for (const each of document.querySelectorAll('article :is(img, svg)'))
        if (see(each)[3] === 0) found.push('not opaque: ' + each.outerHTML.slice(0, 80));
    if ((see(document.body)[0] < 128) !== matchMedia('(prefers-color-scheme: dark)').matches) found.push('theme');
    return found;
}

// count_scrolling: how many pictures scroll in their frame
panel => [...panel.querySelectorAll('[aria-label=picture]')].filter(frame =>
    frame.firstElementChild.clientWidth > frame.closest('.jp-OutputArea-output').clientWidth + 1).length

// measure_game: the height from the game, or the explorer, to the end of the picture
panel => {
    const game = [...panel.querySelectorAll('.widget-hbox')].find(each => each.textContent.startsWith('Predict'));
    const end = panel.querySelector('[role=region]') ?? panel;
    return end.getBoundingClientRect().bottom - (game ?? panel).getBoundingClientRect().top;
}

// find_too_wide: what is cut, or wider than the page
panel => {
    const found = [];
    const page = panel.querySelector('.jp-WindowedPanel-outer');
    if (page.scrollWidth > page.clientWidth) found.push('the notebook scrolls sideways');
    for (const code of panel.querySelectorAll('.jp-InputArea .cm-scroller'))
        if (code.scrollWidth > code.clientWidth + 1) found.push(`code scrolls: ${code.textContent.slice(0, 60)}`);
    for (const text of panel.querySelectorAll('.jp-OutputArea-output > pre'))
        if (getComputedStyle(text).wordBreak !== 'normal') found.push(`breaks: ${text.textContent.slice(0, 60)}`);
    for (const output of panel.querySelectorAll('.jp-OutputArea-output')) {
        const cell = output.closest('.jp-Cell').dataset.windowedListIndex;
        const name = each => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 60)}`;
        const note = each => found.push(`cell ${cell}: ${name(each)}`);
        if (output.scrollWidth > output.clientWidth + 1) note(output);
        const right = output.getBoundingClientRect().right + 1;
        for (const each of output.querySelectorAll('img, svg, table, button, select, label, .widget-html')) {
            const frame = each.parentElement.closest('[style*="overflow"]');
            const box = each.getBoundingClientRect();
            if (box.width && !(frame && output.contains(frame)) && box.right > right) note(each);
        }
        for (const each of output.querySelectorAll('.widget-label, button, .widget-readout'))
            if (each.clientWidth && each.scrollWidth > each.clientWidth + 1) note(each);
    }
    return found;
}

// note_counts: note the number that stands at this pattern each time that the page changes, with the time
pattern => {
    window.counts = [];
    const note = () => {
        const found = new RegExp(pattern).exec(document.getElementById('view').textContent);
        if (found) requestAnimationFrame(() => window.counts.push([Date.now(), Number(found[1])]));
    };
    new MutationObserver(note).observe(document.getElementById('view'), {childList: true, subtree: true});
}
