from celosia.hdl.components import Accelerator as Accelerator
from celosia.hdl.components import AddNorm as AddNorm
from celosia.hdl.components import Requantize as Requantize
from celosia.hdl.components import Rotary as Rotary
from celosia.hdl.components import Softmax as Softmax
from celosia.hdl.components import SystolicArray as SystolicArray
from celosia.hdl.components import Table as Table
